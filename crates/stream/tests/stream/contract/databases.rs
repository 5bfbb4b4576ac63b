//! Sinks that write rows of databases.

use onceflow_stream::{
    SqlColumnType, SqlSinkId, SqlTable,
    testing::sink::{self, SinkBed, SinkPromise},
};
#[cfg(feature = "sqlite")]
use std::path::PathBuf;

/// A position of another stream's place: this one has written nothing.
const SPOILED: &str = "INSERT INTO onceflow_positions VALUES ('s', 'db', 0, 700, 7)";

fn id() -> SqlSinkId {
    SqlSinkId { stream: "s".into(), sink: "db".into() }
}

/// Without a key: a row that is written twice is there twice.
fn table() -> SqlTable {
    let columns = Some(vec![(String::from("n"), SqlColumnType::Int)]);
    SqlTable { name: "numbers".into(), key: Vec::new(), columns }
}

/// The rows of a partition as lines: the second one's numbers begin at 1000.
fn lines(numbers: impl Iterator<Item = i64>, partition: u16, of: u16) -> Vec<String> {
    let is_own = |n: &i64| of == 1 || (*n >= 1000) == (partition == 1);
    numbers.filter(is_own).map(|n| format!("{{\"n\":{n}}}")).collect()
}

#[cfg(feature = "sqlite")]
mod sqlite {
    use super::*;
    use onceflow_stream::SqliteSink;
    use tempfile::TempDir;

    struct SqliteBed(TempDir);

    impl SqliteBed {
        fn path(&self) -> PathBuf {
            self.0.path().join("rows.db")
        }
    }

    impl SinkBed for SqliteBed {
        type Sink = SqliteSink;

        fn clear(&mut self) {
            self.0 = tempfile::tempdir().unwrap();
        }

        fn sink(&self) -> SqliteSink {
            SqliteSink::new(self.path(), id(), table())
        }

        fn lines(&self, _: &str, partition: u16, of: u16) -> Vec<String> {
            let database = rusqlite::Connection::open(self.path()).unwrap();
            let Ok(mut select) = database.prepare("SELECT n FROM numbers ORDER BY rowid") else { return Vec::new() };
            let numbers = select.query_map([], |row| row.get::<_, i64>(0)).unwrap().map(Result::unwrap);
            lines(numbers, partition, of)
        }

        fn spoil(&mut self, _: &str) -> bool {
            let database = rusqlite::Connection::open(self.path()).unwrap();
            let create = "CREATE TABLE onceflow_positions (stream TEXT, sink TEXT, \"partition\" INTEGER, written INTEGER, \
                          crc INTEGER, PRIMARY KEY (stream, sink, \"partition\"));";
            database.execute_batch(&format!("{create} {SPOILED}")).unwrap();
            true
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn rows_of_sqlite_are_there_once_though_the_table_has_no_key() {
        let mut bed = SqliteBed(tempfile::tempdir().unwrap());
        sink::check(&mut bed, SinkPromise::ExactlyOnce).await.unwrap();
        assert!(SqliteSink::forget(&bed.path(), &id()).unwrap(), "it is forgotten once");
        assert!(!SqliteSink::forget(&bed.path(), &id()).unwrap());
    }
}

#[cfg(feature = "postgres")]
#[path = "../../../../cli/tests/cli/streams/postgres_server.rs"]
mod postgres_server;

#[cfg(feature = "postgres")]
mod postgres {
    use super::{postgres_server::PostgresServer, *};
    use onceflow_stream::PostgresSink;

    struct PostgresBed(PostgresServer);

    impl PostgresBed {
        fn config(&self) -> String {
            format!("host=127.0.0.1 port={} user=postgres dbname=postgres", self.0.port)
        }
    }

    impl SinkBed for PostgresBed {
        type Sink = PostgresSink;

        fn clear(&mut self) {
            self.0.query("DROP TABLE IF EXISTS numbers, onceflow_positions");
        }

        fn sink(&self) -> PostgresSink {
            PostgresSink::new(&self.config(), None, id(), table()).unwrap()
        }

        fn lines(&self, _: &str, partition: u16, of: u16) -> Vec<String> {
            if self.0.query("SELECT count(*) FROM pg_tables WHERE tablename = 'numbers'") == ["0"] {
                return Vec::new();
            }
            let rows = self.0.query("SELECT n FROM numbers ORDER BY ctid");
            lines(rows.into_iter().map(|n| n.parse().unwrap()), partition, of)
        }

        fn spoil(&mut self, _: &str) -> bool {
            let create = "CREATE TABLE onceflow_positions (stream TEXT, sink TEXT, \"partition\" INTEGER, \
                          written BIGINT, crc BIGINT, PRIMARY KEY (stream, sink, \"partition\"));";
            self.0.query(&format!("{create} {SPOILED}"));
            true
        }
    }

    // A transaction that is dropped is rolled back by the connection's task, while the bed waits for the server.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn rows_of_postgres_are_there_once_though_the_table_has_no_key() {
        let mut bed = PostgresBed(PostgresServer::start());
        sink::check(&mut bed, SinkPromise::ExactlyOnce).await.unwrap();
        assert!(PostgresSink::forget(&bed.config(), None, &id()).await.unwrap(), "it is forgotten once");
        assert!(!PostgresSink::forget(&bed.config(), None, &id()).await.unwrap());
    }
}
