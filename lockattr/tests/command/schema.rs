//! Whether what is printed is as `docs/schema` has it.

use std::fs;

use serde_json::Value;

/// The value, which the schema of this name describes.
pub(crate) fn checked(name: &str, json: &str) -> Value {
    let path = format!("{}/../docs/schema/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let schema = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let schema: Value = serde_json::from_str(&schema).expect("a schema is JSON");
    let value = serde_json::from_str(json).unwrap_or_else(|error| panic!("{json}: {error}"));
    if let Err(error) = jsonschema::validate(&schema, &value) {
        panic!(
            "{json} is not a {name}: {error} at {}",
            error.instance_path()
        );
    }
    value
}
