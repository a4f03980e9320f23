package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
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
func tarGz(folder string, files []file, modified time.Time) []byte {
	var out bytes.Buffer
	gz := value(gzip.NewWriterLevel(&out, gzip.BestCompression))
	w := tar.NewWriter(gz)
	for _, f := range slices.SortedFunc(slices.Values(files), byName) {
		ok(w.WriteHeader(&tar.Header{
			Name: folder + "/" + f.name, Size: int64(len(f.data)), Mode: int64(f.mode()), ModTime: modified,
		}))
		value(w.Write(f.data))
	}
	ok(w.Close())
	ok(gz.Close())
	return out.Bytes()
}

// zipped is like tarGz, for zip.
func zipped(folder string, files []file, modified time.Time) []byte {
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, f := range slices.SortedFunc(slices.Values(files), byName) {
		header := &zip.FileHeader{Name: folder + "/" + f.name, Method: zip.Deflate, Modified: modified}
		header.SetMode(f.mode())
		value(value(w.CreateHeader(header)).Write(f.data))
	}
	ok(w.Close())
	return out.Bytes()
}
