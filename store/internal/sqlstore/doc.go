// Package sqlstore is what a Store on SQL does whatever the engine: rows and how they become the vocabulary of package store
// (and when they can't be read), and the decisions that stand between reading a row and writing it. It owns no connection
// and no SQL: store/sqlite keeps its statements beside the methods that run them. Everything here is pure; time is an
// argument.
//
//	op, err := row.Decode()
//	move, err := sqlstore.Advance(op, report, sqlstore.Around{IsCreate: true}, now)
//	row = sqlstore.EncodeOperation(move.Op)
package sqlstore
