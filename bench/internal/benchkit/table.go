package benchkit

import (
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
)

// Table writes structs as lines of text or of JSON. A field with a col is a column of that name.
// One that JSON omits where it is empty is a column only where the first line has it.
type Table struct {
	Out     io.Writer
	JSON    bool
	About   string   // the first line of text
	columns []string // once the table has begun
}

// Print writes a line. Numbers of type int64 are bytes, and shown in MiB.
func (p *Table) Print(v any) error {
	if p.JSON {
		line, err := json.Marshal(v)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(p.Out, "%s\n", line)
		return err
	}
	cells := map[string]string{}
	names := fields(reflect.Indirect(reflect.ValueOf(v)), cells)
	if p.columns == nil {
		p.columns = names
		if _, err := fmt.Fprintf(p.Out, "# %s\n", p.About); err != nil {
			return err
		}
		if err := p.line(func(name string) string { return name }); err != nil {
			return err
		}
	}
	return p.line(func(name string) string { return cells[name] })
}

// line writes the cells of all columns.
func (p *Table) line(text func(name string) string) error {
	var b strings.Builder
	for _, name := range p.columns {
		fmt.Fprintf(&b, " %*s", max(len(name), 9), text(name))
	}
	_, err := fmt.Fprintln(p.Out, b.String())
	return err
}

// fields fills in the cells of a struct's columns and returns the names of those that a table has
// which begins with it.
func fields(v reflect.Value, cells map[string]string) (names []string) {
	for i := range v.NumField() {
		field, value := v.Type().Field(i), v.Field(i)
		if value.Kind() == reflect.Pointer {
			if value.IsNil() {
				continue
			}
			value = value.Elem()
		}
		if value.Kind() == reflect.Struct {
			names = append(names, fields(value, cells)...)
			continue
		}
		name := field.Tag.Get("col")
		if name == "" {
			continue
		}
		cells[name] = cell(name, value.Interface())
		if !v.Field(i).IsZero() || !strings.Contains(field.Tag.Get("json"), ",omitempty") {
			names = append(names, name)
		}
	}
	return names
}

// cell is the text of a value.
func cell(name string, value any) string {
	switch v := value.(type) {
	case float64:
		if v >= 1000 {
			return strconv.FormatFloat(v, 'f', 0, 64)
		}
		return strconv.FormatFloat(v, 'f', 3, 64)
	case int:
		if name == "size" {
			return sizeName(v)
		}
	case int64:
		return strconv.FormatInt(v>>20, 10) // bytes, in MiB
	}
	return fmt.Sprint(value)
}
