package pgstore
