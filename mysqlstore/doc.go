// Package mysqlstore keeps locks in a MySQL or MariaDB database.
package mysqlstore
