package zkstore

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"
)

// Of ZooKeeper's protocol: kinds of requests, and sizes of what replies consist of.
const (
	opCreate   = 1
	opDelete   = 2
	opExists   = 3
	opGet      = 4
	opChildren = 12
	opMulti    = 14
	opCreate2  = 15
	opAuth     = 100
	opError    = -1

	sizeLength  = 4
	sizeRequest = sizeLength + 4 + 4 // before what is asked: its number and kind
	sizeHeader  = 4 + 8 + 4          // of a reply: which request, number of the last change, error
	sizeResult  = 4 + 1 + 4          // before each result of a transaction: kind, whether it is the last, error
	sizeStat    = 68
)

// A packet is a request. Its length and number come with sending it.
type packet []byte

func newPacket(op int32) packet {
	p := make(packet, sizeLength+4, 512)
	return p.int(op)
}

func (p packet) int(n int32) packet { return binary.BigEndian.AppendUint32(p, uint32(n)) }

func (p packet) text(s string) packet { return append(p.int(int32(len(s))), s...) }

func (p packet) bytes(b []byte) packet {
	if b == nil {
		return p.int(-1)
	}
	return append(p.int(int32(len(b))), b...)
}

// part begins the next part of a transaction.
func (p packet) part(op int32) packet { return append(p.int(op), 0).int(-1) }

// end ends a transaction.
func (p packet) end() packet { return append(p.int(-1), 1).int(-1) }

func (p packet) create(path string, data []byte, acl []zk.ACL, flags int32) packet {
	p = p.text(path).bytes(data).int(int32(len(acl)))
	for _, a := range acl {
		p = p.int(a.Perms).text(a.Scheme).text(a.ID)
	}
	return p.int(flags)
}

func (p packet) delete(path string, version int32) packet { return p.text(path).int(version) }

// numbered is a packet that is ready to be sent.
func (p packet) numbered(xid int32) packet {
	binary.BigEndian.PutUint32(p, uint32(len(p)-sizeLength))
	binary.BigEndian.PutUint32(p[sizeLength:], uint32(xid))
	return p
}

// A change is a write that was done, as its reply tells of it.
type change struct {
	zxid int64
	at   int64 // in ms of the server's clock
}

var errReply = errors.New("zookeeper store: a reply that makes no sense")

// readReply reads a reply: its error, or what the first container of a transaction tells.
func readReply(frame []byte) (done change, err error) {
	rest := frame[sizeLength:]
	if code := int32(binary.BigEndian.Uint32(rest[12:])); code != 0 {
		return done, errorOf(code)
	}
	rest = rest[sizeHeader:]
	for len(rest) >= sizeResult && rest[4] == 0 {
		op := int32(binary.BigEndian.Uint32(rest))
		rest = rest[sizeResult:]
		size := 0
		switch {
		case op == opDelete:
		case len(rest) < 4:
			return done, errReply
		case op == opError:
			if code := int32(binary.BigEndian.Uint32(rest)); code != 0 { // those behind it have another
				return done, errorOf(code)
			}
			size = 4
		case op == opCreate || op == opCreate2:
			size = 4 + int(binary.BigEndian.Uint32(rest))
			if op == opCreate2 {
				size += sizeStat
			}
		}
		if size < 0 || len(rest) < size {
			return done, errReply
		}
		if op == opCreate2 && done.zxid == 0 {
			stat := rest[size-sizeStat:]
			done.zxid, done.at = int64(binary.BigEndian.Uint64(stat)), int64(binary.BigEndian.Uint64(stat[16:]))
		}
		rest = rest[size:]
	}
	return done, nil
}

func errorOf(code int32) error {
	switch code {
	case -101:
		return zk.ErrNoNode
	case -110:
		return zk.ErrNodeExists
	case -111:
		return zk.ErrNotEmpty
	}
	return fmt.Errorf("zookeeper store: error %d", code)
}
