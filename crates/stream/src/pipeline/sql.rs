//! Sinks that write rows of a database: every record is a row, and in the same transaction stands how far the sink is.
//! So each record takes effect once, whether the table has a key or not: a chunk that comes again finds its end noted.
//!
//! | module | owns |
//! |---|---|
//! | `rows` | the decision whether a chunk is written already, its rows, the statements that all databases share |
//! | `sqlite` | a file of SQLite (feature `sqlite`) |
//! | `postgres` | a server of PostgreSQL (feature `postgres`) |

#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod rows;
#[cfg(feature = "sqlite")]
pub mod sqlite;

/// The sink whose position a database notes, in its table `onceflow_positions`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqlSinkId {
    /// The pipeline.
    pub stream: String,
    /// The sink.
    pub sink: String,
}

/// The types of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SqlColumnType {
    /// Whole numbers.
    Int,
    /// Floating-point numbers.
    Float,
    /// True or false.
    Bool,
    /// Text.
    Text,
    /// Any JSON.
    Json,
}

/// The table that a sink writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqlTable {
    /// Its name, with or without a schema.
    pub name: String,
    /// The columns by which a record replaces an earlier one; without them, every record is a row of its own.
    pub key: Vec<String>,
    /// The columns of a table that is created if it does not exist; without them, it must exist.
    pub columns: Option<Vec<(String, SqlColumnType)>>,
}
