use crate::{
    exit::{self, Failure},
    show,
};
use axum::{
    body::Body,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use schemars::JsonSchema;
use serde::Serialize;

/// A request that failed: the status, and a text that names the reason and the fix.
#[derive(Debug)]
pub(super) struct HttpError {
    status: StatusCode,
    text: String,
}

/// The document of an error.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Error")]
pub(super) struct Page {
    status: u16,
    error: String,
}

impl HttpError {
    pub(super) fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, text: text.into() }
    }

    /// Returns whether the server, and not the request, is the reason.
    pub(super) fn is_server(&self) -> bool {
        self.status.is_server_error()
    }

    pub(super) fn bad_request(text: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, text)
    }
}

/// The HTTP status has the same meaning as the exit status of the command.
impl From<Failure> for HttpError {
    fn from(failure: Failure) -> Self {
        Self::new(status(failure.code), failure.to_string())
    }
}

/// Returns the HTTP status for the exit status of a command.
pub(super) fn status(code: u8) -> StatusCode {
    match code {
        0 => StatusCode::OK,
        exit::NOT_FOUND => StatusCode::NOT_FOUND,
        exit::CONFIG => StatusCode::BAD_REQUEST,
        exit::NO_QUORUM => StatusCode::SERVICE_UNAVAILABLE,
        exit::CONFLICT => StatusCode::GATEWAY_TIMEOUT,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl IntoResponse for HttpError {
    fn into_response(self) -> Response {
        let status = self.status;
        let page = Page { status: status.as_u16(), error: self.text };
        let body = show::json(&page).unwrap_or_default();
        let mut response = json(status, body);
        if status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

pub(super) fn json(status: StatusCode, document: String) -> Response {
    let mut response = Response::new(Body::from(document));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

pub(super) fn page(status: StatusCode, page: &impl Serialize) -> Result<Response, HttpError> {
    Ok(json(status, show::json(page)?))
}
