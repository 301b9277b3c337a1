package pmi

import (
	"fmt"

	"github.com/tagmatch/tagmatch/bootstrap/internal/space"
)

// v2 is PMI-2: messages with a length, of pairs that end with a semicolon each.
type v2 struct {
	ch    *channel
	place *Place
	jobID string
}

// ask sends the request cmd with further pairs, and returns its answer.
func (p *v2) ask(cmd, pairs string) (fields, error) {
	if err := p.send(cmd, pairs); err != nil {
		return nil, err
	}
	body, err := p.ch.message()
	if err != nil {
		return nil, err
	}
	f := parse(body, ";")
	return f, f.check(cmd + "-response")
}

func (p *v2) send(cmd, pairs string) error {
	body := "cmd=" + cmd + ";" + pairs
	return p.ch.write(fmt.Sprintf("%6d%s", len(body), body))
}

func (p *v2) open(id *space.Identity) error {
	if err := p.ch.write("cmd=init pmi_version=2 pmi_subversion=0\n"); err != nil {
		return err
	}
	line, err := p.ch.line()
	if err != nil {
		return err
	}
	if err := parse(line, " ").check("response_to_init"); err != nil {
		return err
	}
	who := p.place.rank
	if p.place.id != "" {
		who = p.place.id
	}
	f, err := p.ask("fullinit", "pmijobid="+p.place.jobID+";pmirank="+who+";threaded=FALSE;")
	if err != nil {
		return err
	}
	if id.Rank, err = f.number("rank"); err != nil {
		return err
	}
	if id.Size, err = f.number("size"); err != nil {
		return err
	}
	if f, err = p.ask("job-getid", ""); err != nil {
		return err
	}
	p.jobID, id.JobID = f["jobid"], f["jobid"]
	if id.LocalSize >= 0 {
		return nil
	}
	if f, err = p.ask("info-getjobattr", "key=PMI_process_mapping;"); err != nil {
		return err
	}
	if f["found"] == "TRUE" {
		id.LocalRank, id.LocalSize = localOf(f["value"], id.Rank, id.Size)
	}
	return nil
}

func (p *v2) put(key, value string) error {
	_, err := p.ask("kvs-put", "key="+key+";value="+value+";")
	return err
}

func (p *v2) fence() error {
	_, err := p.ask("kvs-fence", "")
	return err
}

func (p *v2) get(key string) (string, error) {
	f, err := p.ask("kvs-get", "jobid="+p.jobID+";srcid=-1;key="+key+";")
	if err == nil && f["found"] != "TRUE" {
		err = fmt.Errorf("the process manager has no value of %s", key)
	}
	return f["value"], err
}

// abort has no exit code in PMI-2: Slurm ends srun with 137.
func (p *v2) abort(code int, reason string) error {
	return p.send("abort", fmt.Sprintf("isworld=TRUE;msg=code %d: %s;", code, plain(reason, " ")))
}

func (p *v2) finalize() error {
	_, err := p.ask("finalize", "")
	return err
}
