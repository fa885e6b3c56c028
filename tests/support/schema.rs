use serde_json::Value;

/// Checks that a value has the properties of a schema, no more and no fewer, with values of their types.
///
/// # Panics If the properties or their types differ from the schema.
pub fn check_schema(document: &Value, schema: &Value, value: &Value, at: &str) {
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.rsplit('/').next().expect("a name");
        return check_schema(document, &document["components"]["schemas"][name], value, at);
    }
    if let Some(any) = schema["anyOf"].as_array() {
        if !value.is_null() {
            check_schema(document, &any[0], value, at);
        }
        return;
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
        other => other.as_str().into_iter().collect(),
    };
    let is_one = match value {
        Value::Null => types.contains(&"null"),
        Value::Bool(_) => types.contains(&"boolean"),
        Value::Number(number) => types.contains(&"number") || (types.contains(&"integer") && number.is_u64()),
        Value::String(_) => types.contains(&"string"),
        Value::Array(_) => types.contains(&"array"),
        Value::Object(_) => types.contains(&"object"),
    };
    assert!(is_one, "{at}: {value} is not of {schema}");
    for item in value.as_array().into_iter().flatten() {
        check_schema(document, &schema["items"], item, at);
    }
    if let (Some(value), Some(properties)) = (value.as_object(), schema["properties"].as_object()) {
        let names: Vec<_> = value.keys().collect();
        assert_eq!(names, properties.keys().collect::<Vec<_>>(), "{at}");
        for (name, schema) in properties {
            check_schema(document, schema, &value[name], &format!("{at}.{name}"));
        }
    }
}
