package progress

func (n *fakeNode) Connect(peer int, _ []byte) error {
	n.strangers = append(n.strangers, peer)
	return nil
}

// meet connects the ranks that Connect was called for; all say the same to each other.
func (n *fakeNode) meet() {
	for ; len(n.strangers) != 0; n.strangers = n.strangers[1:] {
		peer := n.strangers[0]
		if n.met == nil {
			n.met = map[int]bool{}
		}
		n.met[peer] = true
		if err := n.sink.Connected(peer, n.sink.Greeting(peer)); err != nil {
			panic(err)
		}
	}
}
