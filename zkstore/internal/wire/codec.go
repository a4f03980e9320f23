package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Kinds of requests and of results in ZooKeeper's protocol.
const (
	opCreateBare      = 1 // result of Create in a Multi, except for containers; it has no Stat
	opDelete          = 2
	opExists          = 3
	opGet             = 4
	opSet             = 5
	opACL             = 6
	opChildren        = 8
	opSync            = 9
	opPing            = 11
	opMulti           = 14
	opCreate          = 15 // create2, whose reply has a Stat
	opCreateContainer = 19
	opAuth            = 100
	opClose           = -11
	opError           = -1
)

const (
	// Kinds of nodes. The servers remove a Container once it is empty.
	Persistent          int32 = 0
	Ephemeral           int32 = 1
	EphemeralSequential int32 = 3
	Container           int32 = 4

	AnyVersion int32 = -1 // matches every version of a node
)

// An ACL gives one identity all rights to a node.
type ACL struct{ Scheme, ID string }

// An Op is a request without its number, or a part of a Multi.
type Op struct {
	kind  int32
	body  []byte
	parts []Op
}

// Create creates a node of the given kind.
func Create(path string, data []byte, acl ACL, kind int32) Op {
	op := Op{opCreate, encode(path, data, int32(1), int32(31), acl.Scheme, acl.ID, kind), nil} // one entry, five rights
	if kind == Container {
		op.kind = opCreateContainer
	}
	return op
}

// Delete removes a node that has this version and no children.
func Delete(path string, version int32) Op { return Op{opDelete, encode(path, version), nil} }

// Set replaces the data of a node that has this version.
func Set(path string, data []byte, version int32) Op {
	return Op{opSet, encode(path, data, version), nil}
}

// Exists reads the Stat of a node, and may watch its data, creation and deletion.
func Exists(path string, watch bool) Op { return Op{opExists, encode(path, watch), nil} }

// Get reads a node, and may watch its data and deletion.
func Get(path string, watch bool) Op { return Op{opGet, encode(path, watch), nil} }

// GetACL reads the access control list of a node.
func GetACL(path string) Op { return Op{opACL, encode(path), nil} }

// Children lists the children of a node, and may watch them and its deletion.
func Children(path string, watch bool) Op { return Op{opChildren, encode(path, watch), nil} }

// Sync makes the server catch up with its leader before it answers later requests.
func Sync(path string) Op { return Op{opSync, encode(path), nil} }

// Multi makes several writes in one transaction: either all of them are executed, or none.
func Multi(parts ...Op) Op { return Op{opMulti, nil, parts} }

// appendTo appends the request with its header and length.
func (o *Op) appendTo(b []byte, xid int32) []byte {
	start := len(b)
	b = append(appendFields(b, int32(0), xid, o.kind), o.body...)
	if o.kind == opMulti {
		for _, part := range o.parts {
			b = append(appendFields(b, part.kind, false, int32(-1)), part.body...)
		}
		b = appendFields(b, int32(-1), true, int32(-1))
	}
	binary.BigEndian.PutUint32(b[start:], uint32(len(b)-start-4))
	return b
}

func encode(fields ...any) []byte { return appendFields(make([]byte, 0, 256), fields...) }

func appendFields(b []byte, fields ...any) []byte {
	for _, field := range fields {
		switch v := field.(type) {
		case int32:
			b = binary.BigEndian.AppendUint32(b, uint32(v))
		case int64:
			b = binary.BigEndian.AppendUint64(b, uint64(v))
		case bool:
			b = append(b, 0)
			if v {
				b[len(b)-1] = 1
			}
		case string:
			b = append(binary.BigEndian.AppendUint32(b, uint32(len(v))), v...)
		case []byte:
			length := uint32(len(v))
			if v == nil {
				length = math.MaxUint32 // -1
			}
			b = append(binary.BigEndian.AppendUint32(b, length), v...)
		}
	}
	return b
}

// A Stat is the metadata of a node.
type Stat struct {
	Czxid          int64 // number of the change that created it
	Mzxid          int64 // number of the last change
	Ctime, Mtime   int64 // of creation and last change, in ms of the leader's clock
	Version        int32
	EphemeralOwner int64 // its session; 0 if it belongs to none
	NumChildren    int32
}

// A Result is the outcome of a request or of a part of a Multi.
type Result struct {
	Err      error
	Path     string   // of Create
	Data     []byte   // of Get
	Children []string // of Children
	ACL      []ACL    // of GetACL
	Stat     Stat     // of Create, Set, Exists, Get and GetACL; in a Multi, of Create only for a Container
}

// decode reads the body of a reply that has no error.
func (o *Op) decode(r *reader) (res Result) {
	switch o.kind {
	case opCreate, opCreateContainer:
		res.Path = string(r.bytes())
	case opGet:
		res.Data = append([]byte(nil), r.bytes()...)
	case opACL:
		for n := r.int(); n > 0 && !r.failed; n-- {
			r.int() // which rights
			res.ACL = append(res.ACL, ACL{string(r.bytes()), string(r.bytes())})
		}
	case opChildren:
		for n := r.int(); n > 0 && !r.failed; n-- {
			res.Children = append(res.Children, string(r.bytes()))
		}
	}
	if o.kind != opChildren && o.kind != opDelete && o.kind != opSync && o.kind != opClose {
		res.Stat = r.stat()
	}
	return res
}

// decodeMulti reads the results of a Multi, and returns the error of the part that made all of them fail.
func (o *Op) decodeMulti(r *reader) (all []Result, err error) {
	all = make([]Result, 0, len(o.parts))
	for i := range o.parts {
		var res Result
		kind := r.int()
		switch r.take(5); kind {
		case opError:
			if code := Error(r.int()); code != 0 {
				res.Err = code
			}
			if err == nil && res.Err != errSkipped {
				err = res.Err
			}
		case opCreateBare:
			res.Path = string(r.bytes())
		default:
			res = o.parts[i].decode(r)
		}
		all = append(all, res)
	}
	return all, err
}

// A reader decodes the fields of a packet. After a failure it returns zero values.
type reader struct {
	b      []byte
	failed bool
}

var zeros [8]byte

func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.b) || r.failed {
		r.failed = true
		return zeros[:min(max(n, 0), 8)]
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) int() int32  { return int32(binary.BigEndian.Uint32(r.take(4))) }
func (r *reader) long() int64 { return int64(binary.BigEndian.Uint64(r.take(8))) }

func (r *reader) bytes() []byte { return r.take(int(max(0, r.int()))) } // nil has a length of -1

func (r *reader) stat() (s Stat) {
	s.Czxid, s.Mzxid, s.Ctime, s.Mtime, s.Version = r.long(), r.long(), r.long(), r.long(), r.int()
	r.take(8) // versions of the children and of the ACL
	s.EphemeralOwner = r.long()
	r.take(4) // size of the data
	s.NumChildren = r.int()
	r.take(8) // last change of the children
	return s
}

// An Error is an error reply of the server: the request was not executed.
type Error int32

// Errors in replies.
const (
	ErrNoNode         Error = -101
	ErrNoAuth         Error = -102
	ErrBadVersion     Error = -103
	ErrNodeExists     Error = -110
	ErrNotEmpty       Error = -111
	ErrInvalidACL     Error = -114
	ErrAuthFailed     Error = -115
	ErrLocalSession   Error = -120 // an ephemeral node was created in a session that only one server knows
	ErrSessionExpired Error = -112
	errSessionMoved   Error = -118
	errSkipped        Error = -2 // for the parts of a Multi after the one that failed
)

func (e Error) Error() string {
	switch e {
	case ErrNoNode:
		return "zookeeper: no such node"
	case ErrNoAuth, ErrAuthFailed, ErrInvalidACL:
		return "zookeeper: access denied"
	case ErrLocalSession:
		return "zookeeper: the session is local to one server and cannot have ephemeral nodes"
	}
	return fmt.Sprintf("zookeeper: error %d", int32(e))
}

// Errors of calls that got no reply.
var (
	ErrClosed  = errors.New("zookeeper: closed")
	ErrLost    = errors.New("zookeeper: the session ended before the request was sent")
	ErrUnknown = errors.New("zookeeper: the connection was lost before the reply arrived") // the server may have acted
	ErrNotSent = errors.New("zookeeper: the caller stopped waiting before the request was sent")

	errHung  = errors.New("zookeeper: the server does not answer")
	errReply = errors.New("zookeeper: malformed reply")
)
