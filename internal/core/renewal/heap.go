package renewal

// dueHeap is a binary heap of grants, ordered by their due time. Every lock and unlock uses it, so
// it is not a container/heap, which costs an interface call per step.
type dueHeap []*Grant

func (h *dueHeap) push(g *Grant) {
	g.index = int32(len(*h))
	*h = append(*h, g)
	h.up(int(g.index))
}

func (h *dueHeap) remove(g *Grant) {
	i, last := int(g.index), len(*h)-1
	h.swap(i, last)
	(*h)[last] = nil
	*h = (*h)[:last]
	if i < last {
		h.fix((*h)[i])
	}
	g.index = -1
}

// fix restores the order after g.due changed.
func (h *dueHeap) fix(g *Grant) {
	h.up(int(g.index))
	h.down(int(g.index))
}

func (h *dueHeap) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if (*h)[parent].due <= (*h)[i].due {
			return
		}
		h.swap(i, parent)
		i = parent
	}
}

func (h *dueHeap) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(*h) {
			return
		}
		if right := child + 1; right < len(*h) && (*h)[right].due < (*h)[child].due {
			child = right
		}
		if (*h)[i].due <= (*h)[child].due {
			return
		}
		h.swap(i, child)
		i = child
	}
}

func (h *dueHeap) swap(i, j int) {
	(*h)[i], (*h)[j] = (*h)[j], (*h)[i]
	(*h)[i].index, (*h)[j].index = int32(i), int32(j)
}
