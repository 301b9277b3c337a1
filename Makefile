# The commands of this project. Everything works with Go alone, except lint, race and ci (see .ci/run for what those need).
.PHONY: test race lint ci bench fmt

test: ## what README names
	go test ./...

race:
	go test -race ./...

lint:
	gofmt -l . && go vet ./... && golangci-lint run ./...

fmt:
	gofmt -w .

bench: ## the side-by-side comparison with UCX
	go run ./bench compare

ci: ## everything that must hold for a change
	.ci/run
