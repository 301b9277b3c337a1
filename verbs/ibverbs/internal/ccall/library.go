package ccall

// Library is a shared library that was loaded.
type Library struct{ handle uintptr }

// Load loads the shared library of that name as dlopen(3) finds it, with all that it needs. The
// error is the loader's, and names the file.
func Load(name string) (*Library, error) {
	handle, err := load(name)
	if err != nil {
		return nil, err
	}
	return &Library{handle}, nil
}

// Symbol returns the address of a function or variable, of the default version where there are
// several. The error is the loader's, and names library and symbol.
func (l *Library) Symbol(name string) (uintptr, error) { return symbol(l.handle, name) }
