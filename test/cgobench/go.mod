// The path is below verbs/ibverbs, since the program measures a package that is internal there.
module github.com/tagmatch/tagmatch/verbs/ibverbs/cgobench

go 1.26.0

require github.com/tagmatch/tagmatch v0.0.0

require (
	github.com/ebitengine/purego v0.11.3 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace github.com/tagmatch/tagmatch => ../..
