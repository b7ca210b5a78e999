package sqlstore

import (
	"fmt"
	"reflect"
	"regexp"

	"github.com/jmoiron/sqlx"
	"github.com/jmoiron/sqlx/reflectx"
)

// statement.go: parameters by name. An engine keeps one Statement for each literal.

// Args are the parameters of a statement, by name; a struct with db tags serves as well.
type Args map[string]any

// Statement is a query as the driver takes it, and the names of its places.
type Statement struct {
	Text  string
	names []string
}

var parameter = regexp.MustCompile(`:([a-z_]+)`)

// NewStatement puts places where query has names. arg has its parameters, nil for none; bind is one of sqlx's bind types.
// A query has no colon but those of its parameters: a cast is written cast(x as type).
func NewStatement(query string, bind int, arg any) (*Statement, error) {
	s := &Statement{Text: query}
	if arg == nil {
		return s, nil
	}
	if a, ok := arg.(Args); ok {
		arg = map[string]any(a)
	}
	text, _, err := sqlx.Named(query, arg)
	if err != nil {
		return nil, err
	}
	s.Text = sqlx.Rebind(bind, text)
	for _, m := range parameter.FindAllStringSubmatch(query, -1) {
		s.names = append(s.names, m[1])
	}
	return s, nil
}

// Names returns the parameters in the order of their places.
func (s *Statement) Names() []string { return s.names }

// Bind returns the parameters in the order of their places, as every engine can store them.
func (s *Statement) Bind(m *reflectx.Mapper, arg any) ([]any, error) {
	if len(s.names) == 0 {
		return nil, nil
	}
	list := make([]any, 0, len(s.names))
	if a, ok := arg.(Args); ok {
		for _, name := range s.names {
			v, ok := a[name]
			if !ok {
				return nil, fmt.Errorf("no parameter %s", name)
			}
			list = append(list, v)
		}
	} else {
		v := reflect.Indirect(reflect.ValueOf(arg))
		err := m.TraversalsByNameFunc(v.Type(), s.names, func(i int, t []int) error {
			if len(t) == 0 {
				return fmt.Errorf("no parameter %s in %T", s.names[i], arg)
			}
			list = append(list, reflectx.FieldByIndexesReadOnly(v, t).Interface())
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	for i, v := range list {
		switch v := v.(type) {
		case string:
			list[i] = Clean(v)
		case []byte:
			if v == nil { // a driver may take a nil slice for an empty one
				list[i] = nil
			}
		}
	}
	return list, nil
}
