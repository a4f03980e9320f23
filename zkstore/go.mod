module github.com/holdfast-lock/holdfast/zkstore

go 1.25.0

require github.com/holdfast-lock/holdfast v0.0.0

replace github.com/holdfast-lock/holdfast => ../
