package main

import (
	"io"
	"net/http"
	"strconv"
	"sync"

	"github.com/holdfast-lock/holdfast/fence"
)

// A storage is a file server with one file, in memory. It serves PUT /report/LINE.
type storage struct {
	mu    sync.Mutex
	lines [reportLines]string
}

// fenced returns the storage behind a gate, which refuses a token that is lower than one it has seen. A real
// server would keep the highest token with the data, and raise the gate to it when it starts.
func (s *storage) fenced() http.Handler {
	return fence.Handler(new(fence.Gates), func(*http.Request) string { return "report" }, s.unfenced())
}

// unfenced returns a storage that accepts all writes, as most storage does.
func (s *storage) unfenced() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /report/{line}", s.put)
	return mux
}

func (s *storage) put(w http.ResponseWriter, r *http.Request) {
	line, err := strconv.Atoi(r.PathValue("line"))
	if err != nil || line < 1 || line > reportLines {
		http.Error(w, "no such line", http.StatusNotFound)
		return
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1000))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines[line-1] = string(text)
	w.WriteHeader(http.StatusNoContent)
}
