package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"time"
)

// A file is a file in an archive, or an archive itself.
type file struct {
	name    string
	data    []byte
	program bool
}

func (f file) mode() fs.FileMode {
	if f.program {
		return 0o755
	}
	return 0o644
}

func byName(a, b file) int { return strings.Compare(a.name, b.name) }

// tarGz returns an archive of files in a folder. For the same files and time, it returns the same
// bytes.
func tarGz(folder string, files []file, modified time.Time) ([]byte, error) {
	var out bytes.Buffer
	gz, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	w := tar.NewWriter(gz)
	for _, f := range slices.SortedFunc(slices.Values(files), byName) {
		err := w.WriteHeader(&tar.Header{
			Name: folder + "/" + f.name, Size: int64(len(f.data)), Mode: int64(f.mode()), ModTime: modified,
		})
		if err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	err = errors.Join(w.Close(), gz.Close())
	return out.Bytes(), err
}

// zipped is like tarGz, for zip.
func zipped(folder string, files []file, modified time.Time) ([]byte, error) {
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, f := range slices.SortedFunc(slices.Values(files), byName) {
		header := &zip.FileHeader{Name: folder + "/" + f.name, Method: zip.Deflate, Modified: modified}
		header.SetMode(f.mode())
		entry, err := w.CreateHeader(header)
		if err != nil {
			return nil, err
		}
		if _, err := entry.Write(f.data); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}
