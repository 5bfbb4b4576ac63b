//! Sinks that write rows of a database.

use super::{
    LoadedStream,
    check::{CheckedNode, CheckedWork, sink_step},
    declare::{DatabaseDecl, RecordTarget, SqlDecl},
};
use onceflow_core::model::Type;
use onceflow_exec::value::PortValue;
use onceflow_stream::{SqlColumnType, SqlSinkId, SqlTable, Stream};
use std::io;

/// Returns the problem with a database, if it has one: its code, and a hint.
pub(super) fn problem(database: &DatabaseDecl) -> Option<(&'static str, String, &'static str)> {
    let (feature, is_there) = match database {
        DatabaseDecl::Sqlite(_) => ("sqlite", cfg!(feature = "sqlite")),
        DatabaseDecl::Postgres(..) => ("postgres", cfg!(feature = "postgres")),
    };
    if !is_there {
        let hint = "build `onceflow-cli` with that feature";
        return Some(("OF0166", format!("this onceflow was built without the feature `{feature}`"), hint));
    }
    #[cfg(feature = "postgres")]
    if let DatabaseDecl::Postgres(config, _) = database
        && let Err(why) = onceflow_stream::PostgresSink::check(&config.text)
    {
        return Some(("OF0111", why, "`postgres: host=127.0.0.1 user=app dbname=app`"));
    }
    None
}

fn id(stream: &LoadedStream, node: &CheckedNode) -> SqlSinkId {
    SqlSinkId { stream: stream.name.clone(), sink: node.name.clone() }
}

/// The table, with the columns that records of a type need.
fn table(decl: &SqlDecl, ty: &Type) -> SqlTable {
    let columns = match ty {
        Type::Record(fields) => Some(fields.iter().map(|(name, ty)| (name.clone(), column(ty))).collect()),
        _ => None,
    };
    let key = decl.key.iter().map(|key| key.text.clone()).collect();
    SqlTable { name: decl.table.text.clone(), key, columns }
}

fn column(ty: &Type) -> SqlColumnType {
    match ty {
        Type::Option(inner) => column(inner),
        Type::Int => SqlColumnType::Int,
        Type::Float => SqlColumnType::Float,
        Type::Bool => SqlColumnType::Bool,
        Type::Text => SqlColumnType::Text,
        _ => SqlColumnType::Json,
    }
}

/// Adds a sink that writes rows.
pub(super) fn add(
    stream: &LoadedStream,
    node: &CheckedNode,
    gathered: &Stream<PortValue>,
    decl: &SqlDecl,
    encode: impl Fn(&PortValue, &mut Vec<u8>) + Send + Sync + 'static,
) {
    let (name, table, id) = (sink_step(&node.name), table(decl, &node.ty), id(stream, node));
    match &decl.database {
        #[cfg(feature = "sqlite")]
        DatabaseDecl::Sqlite(path) => {
            gathered.sink(&name, onceflow_stream::SqliteSink::new(stream.base.join(&path.text), id, table), encode);
        }
        #[cfg(feature = "postgres")]
        DatabaseDecl::Postgres(config, password) => {
            let password = password.as_ref().map(super::secret::SecretTemplate::text);
            let sink = onceflow_stream::PostgresSink::new(&config.text, password, id, table);
            gathered.sink(&name, sink.expect("the settings were checked"), encode);
        }
        #[cfg(not(feature = "sqlite"))]
        DatabaseDecl::Sqlite(path) => not_built_in(gathered, encode, (&name, table, id), &path.text),
        #[cfg(not(feature = "postgres"))]
        DatabaseDecl::Postgres(config, _password) => not_built_in(gathered, encode, (&name, table, id), &config.text),
    }
}

#[cfg(not(all(feature = "sqlite", feature = "postgres")))]
fn not_built_in(
    _: &Stream<PortValue>,
    _: impl Fn(&PortValue, &mut Vec<u8>),
    (name, table, id): (&str, SqlTable, SqlSinkId),
    database: &str,
) {
    unreachable!("`{name}` ({id:?}) writes {table:?} of {database}, which is a problem of the file in this build")
}

/// Lets every database forget what it knows of a stream, so that it can begin anew; its rows stay. Returns the tables.
///
/// # Errors
/// If a database does not answer.
pub(super) async fn forget(stream: &LoadedStream) -> io::Result<Vec<String>> {
    let mut tables = Vec::new();
    for node in &stream.nodes {
        let CheckedWork::Sink { to: RecordTarget::Sql(decl), .. } = &node.work else { continue };
        let id = id(stream, node);
        let is_known = match &decl.database {
            #[cfg(feature = "sqlite")]
            DatabaseDecl::Sqlite(path) => onceflow_stream::SqliteSink::forget(&stream.base.join(&path.text), &id)?,
            #[cfg(feature = "postgres")]
            DatabaseDecl::Postgres(config, password) => {
                let password = password.as_ref().map(super::secret::SecretTemplate::text);
                onceflow_stream::PostgresSink::forget(&config.text, password.as_ref(), &id).await?
            }
            #[cfg(not(all(feature = "sqlite", feature = "postgres")))]
            other => unreachable!("{other:?} of {id:?} is a problem of the file in this build"),
        };
        if is_known {
            tables.push(decl.table.text.clone());
        }
    }
    Ok(tables)
}
