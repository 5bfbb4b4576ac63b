//! Rows on a server of PostgreSQL. A server that does not answer is asked again, more and more slowly; meanwhile nothing
//! further is written. Whether a transaction whose answer was lost has taken effect stands in the database itself.

use super::{
    SqlColumnType, SqlSinkId, SqlTable,
    rows::{ChunkDecision, POSITIONS, RowRun, WrittenPosition, quoted, rows},
};
use crate::pipeline::{
    secret::SecretText,
    sink::{SinkChunk, SinkWriter, StreamSink, WriteProgress},
};
use onceflow_store::{World, world::RealWorld};
use serde_json::{Map, Value};
use std::{
    collections::BTreeMap,
    io::{Error, Result},
    sync::Arc,
    time::Duration,
};
use tokio::sync::Mutex;
use tokio_postgres::{Client, Config, NoTls, config::SslMode, error::SqlState};

/// The pause after the first try that failed; it doubles with each.
const PAUSE_MS_MIN: u64 = 250;

/// The longest pause.
const PAUSE_MS_MAX: u64 = 30_000;

/// The time a server has to answer when it is connected to.
const CONNECT_MS_MAX: u64 = 10_000;

/// A connection is given up when the server's machine has acknowledged nothing for so long; its settings may say otherwise.
const SILENCE_MS_MAX: u64 = 60_000;

/// The lock of a database under which tables are created: any number that no other program uses.
const CREATING: i64 = 0x6f6e_6365_666c_6f77;

/// Writes every record as a row of a table, exactly once.
#[derive(Clone, Debug)]
pub struct PostgresSink {
    config: Config,
    password: Option<SecretText>,
    id: SqlSinkId,
    table: SqlTable,
}

impl PostgresSink {
    /// Returns the sink that writes a table of a database, named as PostgreSQL does: `host=… user=… dbname=…`, or
    /// `postgresql://user@host/database`. The connection is not encrypted.
    ///
    /// # Errors
    /// If that names no database, or asks for encryption.
    pub fn new(
        config: &str,
        password: Option<SecretText>,
        id: SqlSinkId,
        table: SqlTable,
    ) -> std::result::Result<Self, String> {
        Ok(PostgresSink { config: parse(config)?, password, id, table })
    }

    /// Checks the name of a database.
    ///
    /// # Errors
    /// As [`PostgresSink::new`].
    pub fn check(config: &str) -> std::result::Result<(), String> {
        parse(config).map(drop)
    }

    /// Lets a database forget how far a sink is, so that its pipeline can begin anew; its rows stay. True if it knew.
    ///
    /// # Errors
    /// If the server does not answer.
    pub async fn forget(config: &str, password: Option<&SecretText>, id: &SqlSinkId) -> Result<bool> {
        let config = parse(config).map_err(Error::other)?;
        let mut client = connect(config, password).await.map_err(Failure::into_error)?;
        create_positions(&mut client).await.map_err(|error| Failure::of(&error).into_error())?;
        let delete = format!("DELETE FROM {POSITIONS} WHERE stream = $1 AND sink = $2");
        let deleted = client.execute(&delete, &[&id.stream, &id.sink]).await;
        Ok(deleted.map_err(|error| Failure::of(&error).into_error())? > 0)
    }
}

fn parse(config: &str) -> std::result::Result<Config, String> {
    let mut parsed: Config = config.parse().map_err(|error| format!("this names no database: {error}"))?;
    if parsed.get_hosts().is_empty() {
        return Err(String::from("this names no server: `host=…`"));
    }
    if parsed.get_ssl_mode() == SslMode::Require {
        return Err(String::from("the connection cannot be encrypted: use a tunnel, and leave `sslmode` out"));
    }
    parsed.connect_timeout(Duration::from_millis(CONNECT_MS_MAX));
    if parsed.get_tcp_user_timeout().is_none() {
        parsed.tcp_user_timeout(Duration::from_millis(SILENCE_MS_MAX));
    }
    Ok(parsed)
}

/// Why a try failed.
#[derive(Debug)]
enum Failure {
    /// It may succeed later.
    Passing(String),
    /// It cannot.
    Lasting(String),
}

impl Failure {
    fn of(error: &tokio_postgres::Error) -> Self {
        let Some(database) = error.as_db_error() else {
            let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
            return Failure::Passing(format!("{error}{cause}"));
        };
        let detail = database.detail().map(|detail| format!(" ({detail})")).unwrap_or_default();
        let why = format!("{}{detail}", database.message());
        let code = database.code();
        // Of the connection, of resources, of an operator's doing; a transaction that met another one.
        let passes = ["08", "53", "57", "58"].iter().any(|class| code.code().starts_with(class))
            || [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED].contains(code);
        if passes { Failure::Passing(why) } else { Failure::Lasting(why) }
    }

    fn into_error(self) -> Error {
        let (Failure::Passing(why) | Failure::Lasting(why)) = self;
        Error::other(format!("PostgreSQL: {why}"))
    }
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        Failure::of(&error)
    }
}

async fn connect(mut config: Config, password: Option<&SecretText>) -> std::result::Result<Client, Failure> {
    if let Some(password) = password {
        config.password(password.reveal().map_err(|error| Failure::Lasting(error.to_string()))?);
    }
    let (client, connection) = config.connect(NoTls).await?;
    let talking = async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "the connection to PostgreSQL ended");
        }
    };
    RealWorld::here().spawn("onceflow postgres", Box::pin(talking));
    Ok(client)
}

async fn create_positions(client: &mut Client) -> std::result::Result<(), tokio_postgres::Error> {
    let create = format!(
        "CREATE TABLE IF NOT EXISTS {POSITIONS} (stream TEXT NOT NULL, sink TEXT NOT NULL, \"partition\" INTEGER NOT NULL, \
         written BIGINT NOT NULL, crc BIGINT NOT NULL, PRIMARY KEY (stream, sink, \"partition\"))"
    );
    create_if_absent(client, POSITIONS, &create).await
}

/// Creates a table, unless it is there: a user without the right to create tables may write to one.
async fn create_if_absent(
    client: &mut Client,
    table: &str,
    create: &str,
) -> std::result::Result<(), tokio_postgres::Error> {
    if client.query_one("SELECT to_regclass($1) IS NOT NULL", &[&table]).await?.get(0) {
        return Ok(());
    }
    // Two sessions that create one table at once meet in an error, though each says IF NOT EXISTS.
    let transaction = client.transaction().await?;
    transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&CREATING]).await?;
    transaction.batch_execute(create).await?;
    transaction.commit().await
}

fn type_of(ty: SqlColumnType) -> &'static str {
    match ty {
        SqlColumnType::Int => "BIGINT",
        SqlColumnType::Float => "DOUBLE PRECISION",
        SqlColumnType::Bool => "BOOLEAN",
        SqlColumnType::Text => "TEXT",
        SqlColumnType::Json => "JSONB",
    }
}

impl StreamSink for PostgresSink {
    fn open(&self, partition: u16, _: u16) -> Result<Box<dyn SinkWriter>> {
        let link = PostgresLink { sink: self.clone(), partition, client: None, resumed: None };
        Ok(Box::new(PostgresWriter(Arc::new(Mutex::new(link)))))
    }
}

struct PostgresWriter(Arc<Mutex<PostgresLink>>);

/// The connection of a partition, made when it is needed.
struct PostgresLink {
    sink: PostgresSink,
    partition: u16,
    client: Option<Client>,
    /// The bytes that are noted as written, and those that were committed: looked at with the first connection.
    resumed: Option<(u64, u64)>,
}

impl SinkWriter for PostgresWriter {
    fn resume(&mut self, _: &str, written: u64, committed: u64) -> Result<()> {
        // Nothing has it yet: the first write comes after this.
        let link = self.0.try_lock().map_err(|_| Error::other("a write is under way before the sink resumes"));
        link?.resumed = Some((written, committed));
        Ok(())
    }

    fn begin_write(&mut self, chunk: &SinkChunk) -> Result<WriteProgress> {
        let (link, chunk) = (self.0.clone(), chunk.clone());
        Ok(WriteProgress::Going(Box::pin(async move { link.lock().await.write_until_done(&chunk).await })))
    }

    fn write(&mut self, _: &SinkChunk) -> Result<()> {
        Err(Error::other("a chunk is written without waiting"))
    }
}

impl PostgresLink {
    async fn write_until_done(&mut self, chunk: &SinkChunk) -> Result<()> {
        let runs = rows(chunk)?;
        let mut pause_ms = PAUSE_MS_MIN;
        loop {
            match self.write(chunk, &runs).await {
                Ok(()) => return Ok(()),
                Err(Failure::Lasting(why)) => return Err(Failure::Lasting(why).into_error()),
                Err(Failure::Passing(why)) => {
                    tracing::warn!("PostgreSQL: {why}; trying again in {pause_ms} ms");
                    self.client = None;
                }
            }
            RealWorld::here().sleep(pause_ms).await;
            pause_ms = (pause_ms * 2).min(PAUSE_MS_MAX);
        }
    }

    /// Writes the rows of a chunk and the position behind it in one transaction.
    async fn write(&mut self, chunk: &SinkChunk, runs: &[RowRun]) -> std::result::Result<(), Failure> {
        let lasting = |error: Error| Failure::Lasting(error.to_string());
        if self.client.as_ref().is_none_or(Client::is_closed) {
            let client = connect(self.sink.config.clone(), self.sink.password.as_ref()).await?;
            self.client = Some(client);
            self.prepare().await?;
        }
        let (id, partition) = (&self.sink.id, i32::from(self.partition));
        let client = self.client.as_mut().expect("it was connected just now");
        let transaction = client.transaction().await?;
        // The row is there, so two writers of one partition wait for each other here.
        let select = format!(
            "SELECT written, crc FROM {POSITIONS} WHERE stream = $1 AND sink = $2 AND \"partition\" = $3 FOR UPDATE"
        );
        let row = transaction.query_one(&select, &[&id.stream, &id.sink, &partition]).await?;
        let position = WrittenPosition {
            written: u64::try_from(row.get::<_, i64>(0)).unwrap_or(0),
            crc: u32::try_from(row.get::<_, i64>(1)).unwrap_or(0),
        };
        // Checked once: the position of a later try may be that of this one, whose answer was lost.
        if let Some((written, committed)) = self.resumed.take() {
            position.check(id, written, committed).map_err(lasting)?;
        }
        let ChunkDecision::Write(after) = position.decide(chunk).map_err(lasting)? else { return Ok(()) };
        for run in runs {
            let columns = run.columns.iter().map(|column| quoted(column)).collect::<Vec<_>>().join(", ");
            let (table, conflict) = (self.sink.table.quoted(), self.sink.table.on_conflict(&run.columns));
            // The server converts JSON to the types of its columns.
            let insert = format!(
                "INSERT INTO {table} ({columns}) SELECT {columns} FROM \
                 jsonb_populate_recordset(NULL::{table}, $1::text::jsonb){conflict}"
            );
            let rows = serde_json::to_string(&last_of_each_key(&run.rows, &self.sink.table.key))
                .map_err(|error| Failure::Lasting(error.to_string()))?;
            transaction.execute(&insert, &[&rows]).await?;
        }
        let note = format!(
            "UPDATE {POSITIONS} SET written = $4, crc = $5 WHERE stream = $1 AND sink = $2 AND \"partition\" = $3"
        );
        let written = i64::try_from(after.written).map_err(|error| Failure::Lasting(error.to_string()))?;
        transaction.execute(&note, &[&id.stream, &id.sink, &partition, &written, &i64::from(after.crc)]).await?;
        transaction.commit().await?;
        Ok(())
    }

    /// Creates what is not there: the tables, and the row of this sink.
    async fn prepare(&mut self) -> std::result::Result<(), Failure> {
        let client = self.client.as_mut().expect("it was connected just now");
        create_positions(client).await?;
        if let Some(create) = self.sink.table.create(type_of) {
            create_if_absent(client, &self.sink.table.quoted(), &create).await?;
        }
        let insert = format!("INSERT INTO {POSITIONS} VALUES ($1, $2, $3, 0, 0) ON CONFLICT DO NOTHING");
        let SqlSinkId { stream, sink } = &self.sink.id;
        client.execute(&insert, &[stream, sink, &i32::from(self.partition)]).await?;
        Ok(())
    }
}

/// Returns the rows without those that a later one of the same key replaces: one statement may set a row once only.
fn last_of_each_key<'a>(rows: &'a [Map<String, Value>], key: &[String]) -> Vec<&'a Map<String, Value>> {
    if key.is_empty() {
        return rows.iter().collect();
    }
    let of = |row: &Map<String, Value>| {
        Value::Array(key.iter().map(|column| row.get(column).cloned().unwrap_or(Value::Null)).collect()).to_string()
    };
    let last: BTreeMap<String, usize> = rows.iter().enumerate().map(|(at, row)| (of(row), at)).collect();
    let mut places: Vec<usize> = last.into_values().collect();
    places.sort_unstable();
    places.into_iter().map(|at| &rows[at]).collect()
}
