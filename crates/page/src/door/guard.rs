//! The checks, in their order: name, origin, session, form.

use std::sync::Arc;
use std::time::Duration;

use axum::Form;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{FromRequest, Query, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use http::header::{COOKIE, HOST, HeaderValue, LOCATION, SET_COOKIE};
use http::{Method, StatusCode, Uri};
use tower_http::csrf::CsrfLayer;

use super::fields::Fields;
use super::secret::Token;
use super::{Door, headers};
use crate::assets;
use crate::refusal::Refusal;

/// A form's fields may take this many bytes in all.
const FORM_BYTES: usize = 256 * 1024;
/// How long a form may take to arrive.
const FORM_TIME: Duration = Duration::from_secs(10);
/// The field of every form that shows that this server has made it.
const FORM_FIELD: &str = "form";

/// What the forms of the browser that asks have to carry.
#[derive(Debug, Clone)]
pub(crate) struct FormToken(pub(crate) String);

/// Puts the checks before all routes.
pub(crate) fn guard(routes: Router, door: &Arc<Door>) -> Router {
    routes
        .layer(from_fn_with_state(door.clone(), session))
        .layer(CsrfLayer::new())
        .layer(from_fn_with_state(door.clone(), name))
}

/// The outermost check. Whatever is answered, also by the checks inside, has the security headers.
async fn name(State(door): State<Arc<Door>>, request: Request, next: Next) -> Response {
    let mut response = if !is_named_correctly(&door, &request) {
        let text = "This page is not served under that name. Use the address that `rehop ui` printed; behind a proxy, give its address \
                    with --public-url.";
        Refusal::new(StatusCode::MISDIRECTED_REQUEST, text).into_response()
    } else if ![Method::GET, Method::HEAD, Method::POST].contains(request.method()) {
        Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "A page is read by GET, and acted on by POST.")
            .into_response()
    } else {
        next.run(request).await
    };
    headers::add(response.headers_mut());
    response
}

fn is_named_correctly(door: &Door, request: &Request) -> bool {
    let mut hosts = request.headers().get_all(HOST).iter();
    let host = hosts.next().and_then(|host| host.to_str().ok());
    let is_single = hosts.next().is_none();
    let in_line =
        request.uri().authority().is_none_or(|authority| door.hosts.allow(authority.as_str()));
    is_single && in_line && host.is_some_and(|host| door.hosts.allow(host))
}

async fn session(State(door): State<Arc<Door>>, mut request: Request, next: Next) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    if let Some(asset) = assets::find(&path) {
        return asset.into_response();
    }
    if path == "/enter" && method == Method::GET {
        return enter(&door, request.uri());
    }
    let cookies: Vec<_> =
        request.headers().get_all(COOKIE).iter().filter_map(|value| value.to_str().ok()).collect();
    let Some(form) = cookies.iter().find_map(|cookies| door.session(cookies)) else {
        // A path that begins with two slashes would name another host.
        let path = request.uri().path_and_query().map(|path| path.as_str().to_owned());
        let path = path.filter(|path| method == Method::GET && !path.starts_with("//"));
        return Refusal::without_session(path).into_response();
    };
    if method == Method::POST {
        request = match checked(request, &form).await {
            Ok(request) => request,
            Err(refusal) => return refusal.into_response(),
        };
    }
    request.extensions_mut().insert(FormToken(form.expose().to_owned()));
    next.run(request).await
}

/// Exchanges the one-time token for a cookie, and goes on to a page whose address does not have it.
fn enter(door: &Door, uri: &Uri) -> Response {
    let fields = Query::try_from_uri(uri).map(|Query(fields)| Fields(fields)).unwrap_or_default();
    match door.enter(fields.get("token").unwrap_or_default()) {
        Ok(Some(cookie)) => {
            let mut response = StatusCode::SEE_OTHER.into_response();
            response.headers_mut().insert(LOCATION, HeaderValue::from_static("/"));
            if let Ok(cookie) = HeaderValue::from_str(&cookie) {
                response.headers_mut().insert(SET_COOKIE, cookie);
            }
            response
        }
        Ok(None) => Refusal::used_token().into_response(),
        Err(error) => {
            tracing::error!(%error, "no random numbers for a session");
            Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "This machine has no random numbers.")
                .into_response()
        }
    }
}

/// Reads the form, and checks that this server has made it for this session. Its fields go on with
/// the request.
async fn checked(request: Request, form: &Token) -> Result<Request, Refusal> {
    let (parts, body) = request.into_parts();
    let too_large =
        || Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "The form is larger than 256 KiB.");
    let bytes = match tokio::time::timeout(FORM_TIME, to_bytes(body, FORM_BYTES)).await {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(_)) => return Err(too_large()),
        Err(_) => {
            return Err(Refusal::new(
                StatusCode::REQUEST_TIMEOUT,
                "The form did not arrive in time.",
            ));
        }
    };
    let whole = Request::from_parts(parts.clone(), Body::from(bytes));
    let Ok(Form(fields)) = Form::<Vec<(String, String)>>::from_request(whole, &()).await else {
        return Err(Refusal::new(StatusCode::BAD_REQUEST, "This is not a form of this page."));
    };
    let fields = Fields(fields);
    if !fields.exact(FORM_FIELD).is_some_and(|given| form.is(given)) {
        return Err(Refusal::new(
            StatusCode::FORBIDDEN,
            "The form is not of this session. Reload its page, and send it again.",
        ));
    }
    let mut request = Request::from_parts(parts, Body::empty());
    request.extensions_mut().insert(fields);
    Ok(request)
}
