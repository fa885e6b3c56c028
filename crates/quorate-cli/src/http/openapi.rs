//! The description of the API, in the format OpenAPI 3.1. Its schemas are those of the types that are sent.

use super::operations::{Method, Operation, error_schema};
use schemars::{SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

/// The statuses that every operation may have.
const USUAL: [(&str, &str); 3] =
    [("400", "A parameter is unknown or wrong"), ("401", "No valid token"), ("403", "Not allowed")];

pub(super) fn document(operations: &[Operation]) -> Value {
    let mut settings = SchemaSettings::draft2020_12().for_serialize();
    settings.definitions_path = "/components/schemas".into();
    let mut generator = settings.into_generator();
    let mut paths = Map::new();
    for operation in operations {
        let methods = paths.entry(operation.path.as_str()).or_insert_with(|| json!({}));
        methods[operation.method.word()] = operation.describe(&mut generator);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Quorate",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Leadership, nodes, jobs and leases of one daemon. An error is {\"status\", \"error\"}. If the daemon has a \
                            read token, /livez, /readyz and /leader answer clients without it with their status alone, \
                            and all other paths with 401.",
        },
        "security": [{}, { "token": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
            "schemas": generator.take_definitions(true),
        },
    })
}

impl Operation {
    fn describe(&self, generator: &mut SchemaGenerator) -> Value {
        let content = match self.answer {
            Some(schema) => json!({ "application/json": { "schema": schema(generator) } }),
            None => json!({ "text/plain": { "schema": { "type": "string" } } }),
        };
        let error = json!({ "application/json": { "schema": error_schema(generator) } });
        let mut responses = json!({ "200": { "description": self.summary, "content": content } });
        for (status, description) in self.others.iter().chain(&USUAL) {
            let shown = self.shows.filter(|(of, _)| of == status);
            let content = match shown {
                Some((_, schema)) => json!({ "application/json": { "schema": schema(generator) } }),
                None if self.is_health && *status == "503" => content.clone(),
                None => error.clone(),
            };
            responses[*status] = json!({ "description": description, "content": content });
        }
        let names = self.path.split(['{', '}']).skip(1).step_by(2);
        let in_path =
            |name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } });
        let mut parameters: Vec<Value> = names.map(in_path).collect();
        let mut described = json!({ "summary": self.summary, "responses": responses });
        if matches!(self.method, Method::Post | Method::Put)
            || (self.method == Method::Delete && !self.is_for_clients)
        {
            let properties = self.parameters.iter().map(|parameter| {
                let mut schema = parameter.kind.schema();
                schema["description"] = parameter.about.into();
                (parameter.name.to_owned(), schema)
            });
            let properties: Map<String, Value> = properties.collect();
            let required = self.parameters.iter().filter(|parameter| parameter.is_required);
            let required: Vec<&str> = required.map(|parameter| parameter.name).collect();
            let body = json!({ "type": "object", "properties": properties, "required": required });
            described["requestBody"] = json!({ "content": { "application/json": { "schema": body } } });
            if !self.is_for_clients {
                described["security"] = json!([{ "token": [] }]);
            }
        } else {
            parameters.extend(self.parameters.iter().map(|parameter| {
                json!({
                    "name": parameter.name,
                    "in": "query",
                    "description": parameter.about,
                    "schema": parameter.kind.schema(),
                })
            }));
        }
        described["parameters"] = parameters.into();
        described
    }
}

#[cfg(test)]
mod tests {
    use super::{super::operations, *};
    use axum::routing::MethodRouter;

    fn all(has_jobs: bool) -> Vec<Operation> {
        operations::all(has_jobs, true, MethodRouter::new())
    }

    #[test]
    fn every_reference_has_its_schema_and_every_schema_a_use() {
        let document = document(&all(true));
        let schemas = document["components"]["schemas"].as_object().unwrap();
        let text = document.to_string();
        for name in schemas.keys() {
            assert!(text.contains(&format!("\"#/components/schemas/{name}\"")), "{name}");
        }
        for part in text.split("#/components/schemas/").skip(1) {
            let name = part.split('"').next().unwrap();
            assert!(schemas.contains_key(name), "{name}");
        }
        // A name with a number is that of a second type of the same name.
        assert!(
            schemas.keys().all(|name| !name.ends_with(|c: char| c.is_ascii_digit())),
            "{:?}",
            schemas.keys()
        );
    }

    #[test]
    fn a_daemon_without_jobs_describes_none() {
        let with = document(&all(true))["paths"].as_object().unwrap().len();
        let paths = document(&all(false))["paths"].as_object().unwrap().clone();
        assert!(paths.len() < with && paths.keys().all(|path| !path.contains("jobs")));
        assert!(paths.contains_key("/leader") && paths.contains_key("/api/v1/nodes"));
    }
}
