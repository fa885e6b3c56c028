//! Tests that a request to the leader rings its bell.

use crate::{
    lease::Bell,
    node::Resource,
    scheduler::{
        Schedule,
        control::{Jobs, JobsError},
        job::Job,
        leader::tests::stage::{PERIOD, SECOND, Stage},
    },
};

#[tokio::test]
async fn a_request_rings_the_bell_of_the_group() {
    let stage = Stage::new();
    let bell = Bell::new(stage.quorum.inner(), Resource::election("g").unwrap().bell());
    let job = Job::named("j", Schedule::every(SECOND).unwrap(), "handler");
    // No leader answers, so each request gives up after a moment.
    let jobs = Jobs::new(&stage.quorum, "g").unwrap().wait(PERIOD);
    let heard = async {
        while bell.rings() == 0 {
            let unanswered = jobs.put(&job).await.expect_err("no worker leads");
            assert!(matches!(unanswered, JobsError::Unanswered { .. }), "{unanswered}");
        }
    };
    let env = stage.quorum.env();
    let heard = env.before(env.now() + 20 * SECOND, async {
        tokio::select! { () = bell.listen() => {}, () = heard => {} }
    });
    assert!(heard.await.is_some());
}
