//! The JSON Schema of a flow file, for editors.
/// The schema.
pub fn schema() -> serde_json::Value {
    serde_json::json!({})
}
