package check

import (
	"bytes"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func TestJob(t *testing.T) {
	text, err := os.ReadFile("../kubernetes/job.yaml")
	require.NoError(t, err)
	parts := bytes.Split(text, []byte("\n---\n"))
	require.Len(t, parts, 2)
	var service core.Service
	var job batch.Job
	require.NoError(t, yaml.UnmarshalStrict(parts[0], &service))
	require.NoError(t, yaml.UnmarshalStrict(parts[1], &job))
	require.Equal(t, []string{"v1", "Service", "batch/v1", "Job"}, []string{service.APIVersion, service.Kind, job.APIVersion, job.Kind})

	// What the rendezvous depends on.
	pod := job.Spec.Template.Spec
	require.Equal(t, batch.IndexedCompletion, *job.Spec.CompletionMode)
	require.Equal(t, *job.Spec.Completions, *job.Spec.Parallelism)
	require.Equal(t, core.ClusterIPNone, service.Spec.ClusterIP)
	require.True(t, service.Spec.PublishNotReadyAddresses)
	require.Equal(t, map[string]string{"job-name": job.Name}, service.Spec.Selector)
	require.Equal(t, service.Name, pod.Subdomain)
	env := map[string]string{}
	for _, v := range pod.Containers[0].Env {
		env[v.Name] = v.Value
	}
	require.Equal(t, strconv.Itoa(int(*job.Spec.Completions)), env["WORLD_SIZE"])
	require.Equal(t, job.Name+"-0."+service.Name, env["MASTER_ADDR"])
	mount, secret := pod.Containers[0].VolumeMounts[0], pod.Volumes[0]
	require.Equal(t, secret.Name, mount.Name)
	require.Equal(t, mount.MountPath+"/"+secret.Secret.Items[0].Path, env["TAGMATCH_SECRET_FILE"])
}
