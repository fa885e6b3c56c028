use super::{AWAY, HOLD, report::Turn};
use quorate::{
    election::{Election, Term},
    env::Env,
    quorum::Quorum,
};
use quorate_redis::Connect;
use std::{
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
};

/// Contends in a process of its own and prints its turns.
pub(super) fn run_alone(nodes: &str, mode: &str, rounds: usize) {
    let turns = on_a_runtime(async {
        let quorum = quorum(nodes);
        let turns = match mode {
            "leaders" => lead(&quorum, rounds).await,
            _ => contend(&quorum, rounds).await,
        };
        quorum.close().await;
        turns
    });
    turns.iter().for_each(|turn| println!("{turn}"));
}

/// Contends as several tasks, of `one` quorum or of one each.
pub(super) fn run_together(nodes: &str, contenders: usize, rounds: usize, one: bool) -> Vec<Turn> {
    on_a_runtime(async {
        let shared = quorum(nodes);
        let env = Env::system();
        let start = |_| {
            let quorum = if one { shared.clone() } else { quorum(nodes) };
            env.spawn_scoped(async move { contend(&quorum, rounds).await })
        };
        let tasks: Vec<_> = (0..contenders).map(start).collect();
        let mut turns = Vec::new();
        for task in tasks {
            turns.extend(task.await.expect("a contender does not panic"));
        }
        shared.close().await;
        turns
    })
}

fn on_a_runtime<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(work)
}

fn quorum(nodes: &str) -> Quorum {
    Quorum::redis(nodes.split(',')).expect("URLs").trust_new_nodes(true).build().expect("a setup")
}

async fn contend(quorum: &Quorum, rounds: usize) -> Vec<Turn> {
    let lock = quorum.lock("handed-round");
    let env = quorum.env();
    let mut turns = Vec::new();
    for _ in 0..rounds {
        let asked = env.now().as_nanos();
        let lease = lock.acquire().await.expect("a quorum");
        let had = env.now().as_nanos();
        env.sleep(HOLD).await;
        let gave = env.now().as_nanos();
        // On a machine that is too busy a majority may answer late: it frees all the same.
        let _ = lease.release().await;
        turns.push(Turn { asked, had, gave });
        env.sleep(AWAY).await;
    }
    turns
}

/// Leads, resigns, and campaigns again, until it has led so often.
async fn lead(quorum: &Quorum, rounds: usize) -> Vec<Turn> {
    let turns: Arc<Mutex<Vec<Turn>>> = Arc::default();
    let done = tokio_util::sync::CancellationToken::new();
    let asked = Arc::new(Mutex::new(quorum.env().now().as_nanos()));
    let (noted, over, env) = (Arc::clone(&turns), done.clone(), quorum.env().clone());
    let work = move |_: Term| {
        let (noted, asked, over, env) = (Arc::clone(&noted), Arc::clone(&asked), over.clone(), env.clone());
        async move {
            let had = env.now().as_nanos();
            env.sleep(HOLD).await;
            let gave = env.now().as_nanos();
            let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
            let mut noted = noted.lock().unwrap_or_else(PoisonError::into_inner);
            noted.push(Turn { asked: *asked, had, gave });
            // The campaign goes on at once, or after a back-off of its own: a wait counts from here all the same.
            *asked = gave;
            if noted.len() >= rounds {
                over.cancel();
            }
            Ok::<(), Infallible>(())
        }
    };
    let election = Election::new(quorum, "handed-round").back_off(AWAY);
    election.run(work).until(done.cancelled()).await.expect("an election");
    turns.lock().unwrap_or_else(PoisonError::into_inner).clone()
}
