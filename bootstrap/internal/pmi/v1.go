package pmi

import (
	"fmt"
	"strings"

	"github.com/tagmatch/tagmatch/bootstrap/internal/space"
)

// v1 is PMI-1: lines of key=value pairs that a space separates.
type v1 struct {
	ch    *channel
	place *Place
	kvs   string
}

// ask sends a request and returns its answer, of command reply.
func (p *v1) ask(request, reply string) (fields, error) {
	if err := p.ch.write(request + "\n"); err != nil {
		return nil, err
	}
	return p.read(reply)
}

func (p *v1) read(reply string) (fields, error) {
	line, err := p.ch.line()
	if err != nil {
		return nil, err
	}
	f := parse(line, " ")
	return f, f.check(reply)
}

func (p *v1) open(id *space.Identity) error {
	if p.place.fd < 0 {
		if err := p.introduce(id); err != nil {
			return err
		}
	}
	// Hydra ends the job of whoever asks for another version than 1.1.
	if _, err := p.ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init"); err != nil {
		return err
	}
	f, err := p.ask("cmd=get_maxes", "maxes")
	if err != nil {
		return err
	}
	if n, err := f.number("vallen_max"); err != nil || n <= maxChunk {
		return fmt.Errorf("the process manager takes values of %q bytes: at least %d are needed", f["vallen_max"], maxChunk+1)
	}
	if f, err = p.ask("cmd=get_my_kvsname", "my_kvsname"); err != nil {
		return err
	}
	p.kvs, id.JobID = f["kvsname"], f["kvsname"]
	if mapping, err := p.get("PMI_process_mapping"); err == nil && id.LocalSize < 0 {
		id.LocalRank, id.LocalSize = localOf(mapping, id.Rank, id.Size)
	}
	return nil
}

// introduce says who this process is, where it has connected to the process manager.
func (p *v1) introduce(id *space.Identity) error {
	if _, err := p.ask("cmd=initack pmiid="+p.place.id, "initack"); err != nil {
		return err
	}
	all := fields{}
	for range 3 { // size, rank and debug, in any order
		f, err := p.read("set")
		if err != nil {
			return err
		}
		for k, v := range f {
			all[k] = v
		}
	}
	var err error
	if id.Size, err = all.number("size"); err == nil {
		id.Rank, err = all.number("rank")
	}
	return err
}

func (p *v1) put(key, value string) error {
	_, err := p.ask("cmd=put kvsname="+p.kvs+" key="+key+" value="+value, "put_result")
	return err
}

func (p *v1) fence() error {
	_, err := p.ask("cmd=barrier_in", "barrier_out")
	return err
}

// get fails by rc where there is no such key, whatever value comes with it.
func (p *v1) get(key string) (string, error) {
	f, err := p.ask("cmd=get kvsname="+p.kvs+" key="+key, "get_result")
	return f["value"], err
}

// abort is not answered: the process manager ends this process.
func (p *v1) abort(code int, reason string) error {
	return p.ch.write(fmt.Sprintf("cmd=abort exitcode=%d message=%s\n", code, plain(reason, "_")))
}

func (p *v1) finalize() error {
	_, err := p.ask("cmd=finalize", "finalize_ack")
	return err
}

// plain is s with a stand-in for all that either protocol gives a meaning, and not too long.
func plain(s, instead string) string {
	const most = 200
	var b strings.Builder
	for _, r := range s[:min(len(s), most)] {
		switch {
		case r <= ' ' || r > '~' || r == '\\' || r == ';' || r == '=':
			b.WriteString(instead)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
