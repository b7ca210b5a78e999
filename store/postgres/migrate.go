package postgres

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// migrate.go: the tables, which ones a database has, and what it lacks.

//go:embed schema.sql
var schemaFile string

// schemaVersion counts the migrations. Until v0.1.0 there is one, edited in place: tables that another build made are told
// by the checksum.
const schemaVersion = "1"

func schemaText() string { return strings.ReplaceAll(schemaFile, "\r\n", "\n") }

func schemaMark() string {
	sum := sha256.Sum256([]byte(schemaText()))
	return schemaVersion + "/" + hex.EncodeToString(sum[:8])
}

// Schema returns the SQL that makes the schema of that name ("" for DefaultSchema) and its tables, for a database in which
// the role of the Store may create nothing. It is to be run once, in a transaction, by a role that may. The Store's role then
// needs usage of the schema, and select, insert, update and delete on its tables.
func Schema(name string) (string, error) {
	if name == "" {
		name = DefaultSchema
	}
	if err := checkSchema(name); err != nil {
		return "", err
	}
	return `create schema if not exists "` + name + "\";\n\n" + tables(`"`+name+`"`), nil
}

func tables(quoted string) string {
	return strings.ReplaceAll(schemaText()+"\ninsert into {schema}.leadonce_meta (name, value) values ('schema', '"+schemaMark()+
		"');\n", "{schema}", quoted)
}

// migrate makes the tables if there are none. Any number of processes may do it at once: the first one does it, the others
// wait for it.
func (s *Store) migrate(ctx context.Context) error {
	err := s.try(ctx, func(ctx context.Context, _ bool) error {
		return s.transaction(ctx, writing, s.makeTables)
	})
	if state(err) == insufficient {
		return fmt.Errorf("the role may not create the tables: let a role that may run the SQL of postgres.Schema(%q), then "+
			"grant usage on schema %s and select, insert, update, delete on all its tables to this one: %w",
			s.opt.Schema, s.opt.Schema, err)
	}
	if err != nil {
		return fmt.Errorf("make the tables: %w", err)
	}
	return nil
}

func (s *Store) makeTables(c *session) error {
	have, err := s.mark(c)
	if err != nil || have != "" {
		return err
	}
	if _, err := c.exec(`
		select cast(pg_advisory_xact_lock(hashtextextended(:name, 0)) as text)`, args{"name": "leadonce migrate " + s.opt.Schema}); err != nil {
		return err
	}
	if have, err = s.mark(c); err != nil || have != "" { // again, with the lock
		return err
	}
	there, err := c.get(new(int), `
		select 1 from pg_catalog.pg_namespace where nspname = :name`, args{"name": s.opt.Schema})
	if err != nil {
		return err
	}
	if !there {
		if _, err := c.tx.ExecContext(c.ctx, "create schema "+s.st.schema); err != nil {
			return err
		}
	}
	_, err = c.tx.ExecContext(c.ctx, tables(s.st.schema))
	return err
}

// mark returns which tables the schema has, "" without any.
func (s *Store) mark(c *session) (mark string, err error) {
	found, err := c.get(new(int), `
		select 1
		from pg_catalog.pg_class t join pg_catalog.pg_namespace n on n.oid = t.relnamespace
		where n.nspname = :schema and t.relname = 'leadonce_meta'`, args{"schema": s.opt.Schema})
	if err != nil || !found {
		return "", err
	}
	found, err = c.get(&mark, `
		select value from {schema}.leadonce_meta where name = 'schema'`, nil)
	if err == nil && !found {
		err = errors.New("leadonce_meta names no schema: the tables were made by something else")
	}
	return mark, err
}

// Validate compares the database with what this version needs, and says what is missing: tables, columns, indexes, the view,
// the function, and the version of the whole.
func (s *Store) Validate(ctx context.Context) error {
	var missing []string
	have := ""
	err := s.view(ctx, func(c *session) (err error) {
		missing = nil
		objects, err := s.objects(c)
		if err != nil {
			return err
		}
		for _, o := range needed() {
			if !objects[o] {
				missing = append(missing, o)
			}
		}
		if len(missing) == 0 {
			have, err = s.mark(c)
		}
		return err
	})
	switch {
	case err != nil:
		return fmt.Errorf("validate the tables in schema %s: %w", s.opt.Schema, err)
	case len(missing) == len(needed()):
		return fmt.Errorf("schema %s has no leadonce tables: run the SQL of postgres.Schema(%q), or set Options.Migrate",
			s.opt.Schema, s.opt.Schema)
	case len(missing) > 0:
		return fmt.Errorf("schema %s lacks %s: another version made the tables, or something was dropped; compare them with "+
			"the SQL of postgres.Schema(%q)", s.opt.Schema, strings.Join(missing, ", "), s.opt.Schema)
	case have != schemaMark():
		return fmt.Errorf("the tables in schema %s were made by another version (%s, this is %s): use the version that made "+
			"them, or begin with a new schema", s.opt.Schema, have, schemaMark())
	}
	return nil
}

var (
	objectLine = regexp.MustCompile(`(?m)^create (?:unique )?(table|index|view|function) (?:\{schema\}\.)?(leadonce_\w+)`)
	columnLine = regexp.MustCompile(`(?m)^  (\w+) +(?:text|bigint|smallint|bytea)\b`)
)

// needed lists what the schema has to hold, as schema.sql says.
func needed() (list []string) {
	text := schemaText()
	for _, m := range objectLine.FindAllStringSubmatchIndex(text, -1) {
		kind, name := text[m[2]:m[3]], text[m[4]:m[5]]
		list = append(list, kind+" "+name)
		if kind == "table" {
			body, _, _ := strings.Cut(text[m[1]:], "\n)")
			for _, c := range columnLine.FindAllStringSubmatch(body, -1) {
				list = append(list, "column "+name+"."+c[1])
			}
		}
	}
	return list
}

// objects are those that the schema holds. An index that was left invalid counts as missing.
func (s *Store) objects(c *session) (map[string]bool, error) {
	type object struct {
		Name string `db:"name"`
	}
	list, err := all[object](c, `
		select case t.relkind when 'i' then 'index ' when 'v' then 'view ' else 'table ' end || t.relname as name
		from pg_catalog.pg_class t join pg_catalog.pg_namespace n on n.oid = t.relnamespace
			left join pg_catalog.pg_index i on i.indexrelid = t.oid
		where n.nspname = :schema and t.relkind in ('r', 'p', 'i', 'v') and coalesce(i.indisvalid, true)
		union all
		select 'column ' || t.relname || '.' || a.attname
		from pg_catalog.pg_class t join pg_catalog.pg_namespace n on n.oid = t.relnamespace
			join pg_catalog.pg_attribute a on a.attrelid = t.oid
		where n.nspname = :schema and t.relkind in ('r', 'p') and a.attnum > 0 and not a.attisdropped
		union all
		select 'function ' || p.proname
		from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace
		where n.nspname = :schema`, args{"schema": s.opt.Schema})
	got := map[string]bool{}
	for _, o := range list {
		got[o.Name] = true
	}
	return got, err
}
