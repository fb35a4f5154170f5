use super::*;

#[test]
fn every_odd_byte_of_a_path_is_escaped() {
    use std::os::unix::ffi::OsStrExt as _;
    let path = Path::new(std::ffi::OsStr::from_bytes(b"/a b/?#%&=\xff/sessions.db"));
    let uri = immutable_uri(path);
    assert_eq!(
        uri,
        "file:/a%20b/%3F%23%25%26%3D%FF/sessions.db?immutable=1"
    );
}

#[test]
fn the_connection_can_neither_write_nor_load_code() {
    let folder = tempfile::tempdir().unwrap();
    let connection = Connection::open(folder.path().join("sessions.db")).unwrap();
    connection
        .execute_batch("CREATE TABLE t (a); CREATE VIEW v AS SELECT 1 AS one;")
        .unwrap();
    protect(&connection).unwrap();
    for sql in [
        "INSERT INTO t VALUES (1)",
        "DROP TABLE t",
        "SELECT * FROM v",
        "SELECT load_extension('x')",
        "SELECT \"no such column\" FROM t",
    ] {
        assert!(connection.execute_batch(sql).is_err(), "{sql}");
    }
}
