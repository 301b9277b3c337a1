// Package check decodes the manifests of deploy/kubernetes into the types of Kubernetes' API, where
// a field that these do not have is an error. It is a module of its own, for the sake of what it
// imports.
package check
