package pgstore

import (
	"testing"

	"github.com/holdfast-lock/holdfast/internal/stores/diagnosis"
	"github.com/holdfast-lock/holdfast/internal/testing/diagnosistest"
)

func TestDiagnoseFindsVersionsThatAreTooOld(t *testing.T) {
	for number, want := range map[string][]string{"110022": {"postgres.version failure"}, "120000": nil, "150018": nil, "x": {"postgres.version unknown"}} {
		p := &patient{settings: map[string]string{"server_version_num": number, "server_version": number}}
		for _, probe := range probes {
			if probe.ID == "postgres.version" {
				diagnosistest.Want(t, diagnosis.Run("", p, []diagnosis.Probe[*patient]{probe}), want...)
			}
		}
	}
}
