use crate::{Access, Page, Viewer, router};
use axum::{
    Router,
    body::{self, Body},
    http::{Request, StatusCode, header},
    response::Response,
};
use futures_util::StreamExt;
use quorate::{
    Claims, Election, Quorum,
    claim::{ClaimOutcome, ClaimState},
    node::MemoryNode,
};
use std::{convert::Infallible, time::Duration};
use tower::ServiceExt;

const TOKEN: &str = "a-token-from-a-secret-store";

fn quorum() -> Quorum {
    let nodes = ["a", "b", "c"].map(MemoryNode::new);
    Quorum::builder().nodes(nodes).trust_new_nodes(true).worker("ops1").build().unwrap()
}

fn page(quorum: &Quorum) -> Page {
    Page::new(&Election::new(quorum, "billing")).ttl(Duration::from_secs(10))
}

async fn get(app: &Router, path: &str) -> Response {
    app.clone().oneshot(Request::get(path).body(Body::empty()).unwrap()).await.unwrap()
}

async fn text(response: Response) -> String {
    String::from_utf8(body::to_bytes(response.into_body(), 1 << 20).await.unwrap().to_vec()).unwrap()
}

#[tokio::test]
async fn a_mounted_page_links_to_its_own_path() {
    let quorum = quorum();
    let app = Router::new().nest("/ops/quorate", router(page(&quorum)).unwrap());
    for path in ["/ops/quorate", "/ops/quorate/nodes", "/ops/quorate/jobs?page=2", "/ops/quorate/leadership"]
    {
        let response = get(&app, path).await;
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        let cookie = response.headers()[header::SET_COOKIE].to_str().unwrap().to_owned();
        assert!(cookie.contains("; Path=/ops/quorate; SameSite=Strict; HttpOnly"), "{cookie}");
        let shown = text(response).await;
        assert!(shown.contains("Served by ops1"), "{shown}");
        for address in shown.split("href=\"").skip(1) {
            let is_own = address.starts_with("/ops/quorate") || address.starts_with(['#', 'd']);
            assert!(is_own, "{}", &address[..40.min(address.len())]);
        }
    }
    assert_eq!(get(&app, "/ops/quorate/none").await.status(), StatusCode::NOT_FOUND);
    quorum.close().await;
}

#[tokio::test]
async fn the_nodes_are_read_only_while_a_viewer_looks_and_by_one_task() {
    let quorum = quorum();
    quorum.met(Duration::from_secs(5)).await;
    let before = quorum.env().tasks_alive();
    let watch = crate::watch::Watch::start(&page(&quorum), &quorum);
    assert_eq!(quorum.env().tasks_alive(), before + 1);
    let (one, other) = (watch.look(None), watch.look(None));
    let rounds = one.rounds();
    let mut further = other.rounds();
    assert!(one.round().await.is_some() && other.round().await.is_some());
    further.changed().await.unwrap();
    further.changed().await.unwrap();
    assert_eq!(quorum.env().tasks_alive(), before + 1, "two viewers, one task");
    drop((one, other));
    // A round that has begun still ends.
    quorum.env().before(quorum.env().now() + Duration::from_secs(1), further.changed()).await;
    further.mark_unchanged();
    let next = quorum.env().before(quorum.env().now() + Duration::from_secs(2), further.changed()).await;
    assert!(next.is_none(), "a round without a viewer");
    drop(watch);
    let mut rounds = rounds;
    rounds.mark_unchanged();
    assert!(rounds.changed().await.is_err() || quorum.env().tasks_alive() == before);
    quorum.close().await;
}

#[tokio::test]
async fn a_stream_begins_with_the_whole_page() {
    let quorum = quorum();
    let app = router(page(&quorum)).unwrap();
    let response = get(&app, "/events?here=%2Fnodes").await;
    assert_eq!(response.headers()[header::CONTENT_TYPE], "text/event-stream");
    let mut parts = response.into_body().into_data_stream();
    let mut seen = String::new();
    while !seen.contains("</html>") {
        seen += std::str::from_utf8(&parts.next().await.unwrap().unwrap()).unwrap();
    }
    assert!(
        seen.starts_with("retry: 300\n\n") && seen.contains("event: page\ndata: <!DOCTYPE html>"),
        "{seen}"
    );
    assert!(seen.contains("There is a quorum: 3 of 3 nodes vote"), "{seen}");
    for path in ["/events", "/events?here=%2Fnothing", "/events?here=%20"] {
        assert_eq!(get(&app, path).await.status(), StatusCode::NOT_FOUND, "{path}");
    }
    quorum.close().await;
}

#[tokio::test]
async fn a_closed_page_is_open_for_a_viewer_whom_the_service_knows() {
    let quorum = quorum();
    let closed = page(&quorum).closed().check_token(|token| (token == TOKEN).then_some(Access::Operate));
    let app = router(closed).unwrap();
    let stranger = get(&app, "/").await;
    assert_eq!(stranger.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(stranger.extensions().get::<Access>(), None);
    assert_eq!(get(&app, "/events?here=/").await.status(), StatusCode::FORBIDDEN);
    let known = |access| app.clone().layer(axum::Extension(Viewer { access, name: "ada@proxy".into() }));
    assert_eq!(get(&known(None), "/").await.status(), StatusCode::UNAUTHORIZED);
    let reader = get(&known(Some(Access::Read)), "/").await;
    assert_eq!(reader.extensions().get::<Access>(), Some(&Access::Read));
    assert!(!text(get(&known(Some(Access::Read)), "/leadership").await).await.contains("You may operate."));
    assert!(text(get(&known(Some(Access::Operate)), "/leadership").await).await.contains("You may operate."));
    quorum.close().await;
}

#[tokio::test]
async fn a_group_name_that_cannot_be_used_is_refused() {
    let quorum = quorum();
    assert!(router(Page::new(&Election::new(&quorum, "a{b"))).is_err());
    quorum.close().await;
}

/// Lets all attempts of a message fail.
async fn give_up(claims: &Claims, id: &str) {
    let ClaimOutcome::Claimed(claim) = claims.claim(id).await.unwrap() else { panic!("{id:?} is claimed") };
    claim.abandon().await.unwrap();
    assert!(matches!(claims.claim(id).await, Ok(ClaimOutcome::DeadLettered(_))), "{id:?}");
}

#[tokio::test]
async fn a_reset_concerns_the_message_with_exactly_this_id() {
    let quorum = quorum();
    quorum.met(Duration::from_secs(5)).await;
    let claims = Claims::new(&quorum, "orders").max_attempts(1);
    let claims = claims.dead_letter(|_letter| async { Ok::<_, Infallible>("given up") });
    for id in ["17", "17 "] {
        give_up(&claims, id).await;
    }
    let viewer = Viewer { access: Some(Access::Operate), name: "ada@proxy".into() };
    let app = router(page(&quorum)).unwrap().layer(axum::Extension(viewer));
    let response = get(&app, "/leadership").await;
    let cookie = response.headers()[header::SET_COOKIE].to_str().unwrap().to_owned();
    let shown = text(response).await;
    let (_, token) = shown.split_once("name=\"form\" value=\"").unwrap();
    let form = format!("form={}&set=orders&id=17+", token.split('"').next().unwrap());
    let cookie = cookie.split(';').next().unwrap();
    let request = Request::post("/do/reset")
        .header(header::COOKIE, cookie)
        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
    let response = app.clone().oneshot(request.body(Body::from(form)).unwrap()).await.unwrap();
    assert_eq!(response.status(), StatusCode::SEE_OTHER);
    let request = Request::get("/leadership").header(header::COOKIE, cookie).body(Body::empty()).unwrap();
    let shown = text(app.oneshot(request).await.unwrap()).await;
    assert!(shown.contains("orders: the message 17  counts as new"), "{shown}");
    let (reset, other) = (claims.inspect("17 ").await.unwrap(), claims.inspect("17").await.unwrap());
    assert!(matches!(reset, ClaimState::Free { attempts: 0, .. }), "{reset:?}");
    assert!(matches!(other, ClaimState::DeadLettered(_)), "{other:?}");
    quorum.close().await;
}
