//! Rows of databases, each exactly once though the command is killed with `kill -9`, and the server too.

use crate::support::Bed;
#[cfg(feature = "sqlite")]
use crate::support::until_line;
#[cfg(feature = "sqlite")]
use std::process::Command;

fn stream(sink: &str) -> String {
    format!(
        "stream: rows
bundle: 10
sources: {{ n: {{ generate: \"{{'k': n % 50, 'n': n, 'text': string(n)}}\", count: 3000, record: {{ k: int, n: int, text: text }} }} }}
steps:
  kept: {{ from: n, filter: n % 3 == 0 }}
sinks:
{sink}
  seen: {{ from: kept, stdout: true }}
"
    )
}

/// Kills the command some times while it writes, and lets it end.
#[cfg(feature = "sqlite")]
fn killed(bed: &Bed) {
    for after in [1, 40, 200] {
        let mut child = bed.start(&["run", "stream.yaml"]);
        let mut stdout = child.stdout.take().expect("a pipe");
        (0..after).for_each(|_| drop(until_line(&mut stdout, "\"n\"")));
        child.kill().expect("it is still at work");
        child.wait().expect("it was killed");
    }
    bed.run(&["run", "stream.yaml"]).ends(0);
}

/// All rows, one per line, as `n|text`.
fn expected_rows() -> Vec<String> {
    (0..3000).filter(|n| n % 3 == 0).map(|n| format!("{n}|{n}")).collect()
}

/// The last row of each key, as `k|n`.
fn expected_last() -> Vec<String> {
    (0..50).map(|k| format!("{k}|{}", (0..3000).filter(|n| n % 3 == 0 && n % 50 == k).max().expect("a row"))).collect()
}

#[cfg(feature = "sqlite")]
fn output(command: &mut Command) -> Vec<String> {
    let output = command.output().expect("the command starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

#[cfg(feature = "sqlite")]
#[test]
fn rows_of_sqlite_are_there_once_though_the_command_is_killed() {
    let bed = Bed::new();
    bed.write(
        "stream.yaml",
        &stream("  all:  { from: kept, sqlite: out.db, table: everything }\n  last: { from: kept, sqlite: out.db, table: last, key: k }"),
    );
    killed(&bed);
    let query = |sql: &str| {
        let program = "import sqlite3, sys\nfor row in sqlite3.connect('out.db').execute(sys.argv[1]): print('|'.join(map(str, row)))";
        output(Command::new("python3").args(["-c", program, sql]).current_dir(bed.dir.path()))
    };
    assert_eq!(query("SELECT n, text FROM everything ORDER BY n"), expected_rows());
    assert_eq!(query("SELECT k, n FROM last ORDER BY k"), expected_last());
    // The rows stay when it begins anew, and a table without a key has them twice then.
    let anew = bed.run(&["run", "stream.yaml", "--new"]).ends(0);
    assert!(anew.stderr.contains("the rows of table `last` stay"), "{}", anew.stderr);
    assert_eq!(query("SELECT k, n FROM last ORDER BY k"), expected_last());
    assert_eq!(query("SELECT count(*) FROM everything"), ["2000"]);
    // Another stream of that name, in another store, does not write to the table.
    let other = bed.run(&["run", "stream.yaml", "--store", "other"]).ends(1);
    assert!(other.stderr.contains("it is another database or stream"), "{}", other.stderr);
    assert_eq!(query("SELECT count(*) FROM everything"), ["2000"]);
    bed.run(&["fsck"]).ends(0);
}

#[cfg(feature = "sqlite")]
#[test]
fn a_table_that_is_not_there_and_rows_that_do_not_fit_stop_the_stream_with_the_reason() {
    let bed = Bed::new();
    let stream = |source: &str| {
        format!(
            "stream: rows\nsources: {{ n: {{ generate: \"{source}\", count: 3 }} }}\nsteps: {{ j: {{ from: n, flat_map: \"[record]\" }} }}\n\
             sinks: {{ db: {{ from: j, sqlite: out.db, table: t, key: a }} }}\n"
        )
    };
    bed.write(
        "stream.yaml",
        "stream: rows\nsources: { n: { file: in.jsonl } }\nsinks: { db: { from: n, sqlite: out.db, table: t } }\n",
    );
    bed.write("in.jsonl", "{\"a\": 1}\n");
    let said = bed.run(&["run", "stream.yaml"]).ends(1).stderr;
    assert!(said.contains("to db: ") && said.contains("out.db: no such table: t"), "{said}");
    bed.write("stream.yaml", &stream("n"));
    let said = bed.run(&["check", "stream.yaml"]).ends(4).stderr;
    assert!(said.contains("a row needs fields, but the records of `j` are int"), "{said}");
    bed.write("stream.yaml", &stream("{'b': n}"));
    let said = bed.run(&["check", "stream.yaml"]).ends(4).stderr;
    assert!(said.contains("the records of `j` have no field `a`"), "{said}");
}

#[cfg(feature = "postgres")]
mod postgres {
    use super::{super::postgres_server::PostgresServer, *};

    #[test]
    fn rows_of_postgres_are_there_once_though_the_command_and_the_server_are_killed() {
        let (bed, server) = (Bed::new(), PostgresServer::start());
        let database = format!("postgres: \"host=127.0.0.1 port={} user=postgres dbname=postgres\"", server.port);
        bed.write(
            "stream.yaml",
            &stream(&format!(
                "  all:  {{ from: kept, {database}, table: everything }}\n  last: {{ from: kept, {database}, table: last, key: k }}"
            )),
        );
        let count = || -> usize {
            let there = server.query("SELECT count(*) FROM pg_tables WHERE tablename = 'everything'");
            if there == ["0"] {
                0
            } else {
                server.query("SELECT count(*) FROM everything")[0].parse().expect("a number")
            }
        };
        let mut kills = 0;
        for (until, server_dies) in [(1, true), (200, false), (500, true)] {
            let mut command = bed.command(&["run", "stream.yaml"]);
            let mut child = command.stdout(std::process::Stdio::null()).spawn().expect("the command starts");
            let works = |child: &mut std::process::Child| child.try_wait().expect("a child").is_none();
            while works(&mut child) && count() < until {}
            if server_dies {
                // The server dies as by a power failure, and comes back; the command has waited.
                server.stop("immediate");
                server.up();
                let before = count();
                while works(&mut child) && count() == before {}
            }
            kills += usize::from(works(&mut child));
            child.kill().expect("a child");
            child.wait().expect("it was killed");
        }
        assert!(kills > 0, "it was killed while it wrote");
        bed.run(&["run", "stream.yaml"]).ends(0);
        assert_eq!(server.query("SELECT n, text FROM everything ORDER BY n"), expected_rows());
        assert_eq!(server.query("SELECT k, n FROM last ORDER BY k"), expected_last());
        assert_eq!(server.query("SELECT count(*) FROM onceflow_positions WHERE stream = 'rows'"), ["2"]);
        bed.run(&["run", "stream.yaml", "--new"]).ends(0);
        assert_eq!(server.query("SELECT k, n FROM last ORDER BY k"), expected_last());
        assert_eq!(server.query("SELECT count(*) FROM everything"), ["2000"]);
        // A user who may write to the tables, and not create any, may be the stream's.
        server.query("CREATE ROLE writer LOGIN");
        server.query("GRANT SELECT, INSERT, UPDATE ON everything, last, onceflow_positions TO writer");
        let text = bed.read("stream.yaml").replace("stream: rows", "stream: narrow");
        bed.write("narrow.yaml", &text.replace("user=postgres", "user=writer"));
        bed.run(&["run", "narrow.yaml"]).ends(0);
        assert_eq!(server.query("SELECT count(*) FROM everything"), ["3000"]);
        // A server that refuses a row says why.
        server.query("ALTER TABLE last ADD CHECK (n < 0) NOT VALID");
        let refused = bed.run(&["run", "stream.yaml", "--new"]).ends(1).stderr;
        assert!(
            refused.contains("to last: PostgreSQL: ") && refused.contains("violates check constraint"),
            "{refused}"
        );
    }
}
