package postgres

import (
	"encoding/hex"
	"reflect"
	"strconv"

	"github.com/jmoiron/sqlx/reflectx"

	"github.com/leadonce/leadonce/store/internal/sqlstore"
)

// rows.go: many rows as one parameter that every driver can send: the text of a JSON array, a column a name. A statement
// takes it apart by json_to_recordset or json_populate_recordset.

// jsonRows returns rows as JSON. Bytes are written in the hexadecimal form that bytea reads.
func jsonRows[T any](m *reflectx.Mapper, rows []*T) string {
	if len(rows) == 0 {
		return "[]"
	}
	type column struct {
		name  string
		index []int
	}
	var columns []column
	for _, f := range m.TypeMap(reflect.TypeFor[T]()).Index {
		if _, tagged := f.Field.Tag.Lookup("db"); tagged && !f.Embedded {
			columns = append(columns, column{`"` + f.Path + `":`, f.Index})
		}
	}
	b := make([]byte, 0, 1024*len(rows))
	for i, row := range rows {
		b = append(b, "[,"[min(i, 1)], '{')
		v := reflect.ValueOf(row).Elem()
		for j, c := range columns {
			if j > 0 {
				b = append(b, ',')
			}
			b = append(b, c.name...)
			switch f := v.FieldByIndex(c.index); f.Kind() {
			case reflect.Int64:
				b = strconv.AppendInt(b, f.Int(), 10)
			case reflect.String:
				b = sqlstore.AppendJSON(b, f.String())
			default: // []byte
				if f.IsNil() {
					b = append(b, "null"...)
				} else {
					b = append(hex.AppendEncode(append(b, `"\\x`...), f.Bytes()), '"')
				}
			}
		}
		b = append(b, '}')
	}
	return string(append(b, ']'))
}

// jsonColumn returns one text of each row as a JSON array.
func jsonColumn[T any](rows []*T, f func(*T) string) string {
	list := make([]string, len(rows))
	for i, r := range rows {
		list[i] = f(r)
	}
	return sqlstore.JSONTexts(list)
}
