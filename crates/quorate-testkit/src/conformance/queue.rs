use super::{TestClient, client::*};
use quorate::node::{Node, Owner, Refusal, Reply, Request, engine::QUEUE_MAX};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn queued(reply: &Reply) -> bool {
    matches!(reply, Reply::Held { owner, remaining: Some(_) } if owner.as_str() == Owner::QUEUE)
}

fn ahead(ahead: u32) -> Reply {
    Reply::Queued { ahead }
}

pub(super) async fn places_are_ordered_by_ticket_and_not_by_arrival<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = lock("r");
    let place = |client: &TestClient<N>, number, ago| {
        client.queue(&resource, &owner(number), ago * SECOND, LONG, true)
    };
    assert_eq!(client.ask(place(&client, 1, 20)).await, ahead(0));
    assert_eq!(client.ask(place(&client, 2, 10)).await, ahead(1));
    assert_eq!(client.ask(place(&client, 3, 30)).await, ahead(0), "the last to come has waited longest");
    // A waiter that repeats its request keeps its place in the queue, even if the request states another
    // waiting time.
    assert_eq!(client.ask(place(&client, 1, 40)).await, ahead(1));
    assert_eq!(client.ask(place(&client, 2, 0)).await, ahead(2));
    // Waiters that began to wait at the same moment are ordered by their tickets, byte for byte.
    let tie = lock("tie");
    let (at, now) = (5, client.wall().as_micros());
    for (ticket, before) in [("b", 0), ("B", 0), ("é", 2), ("a", 1), ("", 0), ("bb", 4)] {
        let request = Request::Queue {
            resource: tie.clone(),
            ticket: Owner::from_node(ticket),
            at,
            now,
            tolerance: 5 * SECOND,
            ttl: LONG,
            exclusive: true,
        };
        assert_eq!(client.ask(request).await, ahead(before), "{ticket:?}");
    }
}

pub(super) async fn while_a_queue_exists_only_its_head_is_granted<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = lock("r");
    client.ask(client.queue(&resource, &owner(1), 10 * SECOND, LONG, true)).await;
    client.ask(client.queue(&resource, &owner(2), 20 * SECOND, LONG, true)).await;
    let newcomer = client.ask(client.acquire(&resource, &owner(7), LONG)).await;
    assert!(queued(&newcomer), "{newcomer:?}");
    let second = client.ask(from_place(client.acquire(&resource, &owner(8), LONG), &owner(1))).await;
    assert!(queued(&second), "{second:?}");
    assert_eq!(client.inspect(&resource).await.counter, None, "no grant was counted");
    let head = from_place(client.acquire(&resource, &owner(9), LONG), &owner(2));
    assert!(matches!(client.ask(head).await, Reply::Granted { .. }));
    // While the lock is held, the reply names its holder.
    let held = client.ask(from_place(client.acquire(&resource, &owner(8), LONG), &owner(1))).await;
    assert!(matches!(&held, Reply::Held { owner: by, .. } if *by == owner(9)), "{held:?}");
    client.ask(leave_queue(&resource, &owner(2))).await;
    client.ask(release(&resource, &owner(9))).await;
    assert!(queued(&client.ask(client.acquire(&resource, &owner(7), LONG)).await));
    let next = from_place(client.acquire(&resource, &owner(8), LONG), &owner(1));
    assert!(matches!(client.ask(next).await, Reply::Granted { .. }));
    client.ask(leave_queue(&resource, &owner(1))).await;
    client.ask(release(&resource, &owner(8))).await;
    client.must_acquire(&resource, &owner(7), LONG).await;
}

pub(super) async fn readers_go_in_together_up_to_a_writer<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = lock("r");
    for (number, ago, exclusive, before) in
        [(1, 50, false, 0), (2, 40, false, 0), (3, 30, true, 2), (4, 20, false, 1), (5, 10, true, 4)]
    {
        let place = client.queue(&resource, &owner(number), ago * SECOND, LONG, exclusive);
        assert_eq!(client.ask(place).await, ahead(before), "{number}");
    }
    for (number, goes_in) in [(2, true), (1, true), (4, false)] {
        let asked = from_place(share(&resource, &owner(10 + number), LONG), &owner(number));
        let reply = client.ask(asked).await;
        assert_eq!(reply == Reply::Shared, goes_in, "{number}: {reply:?}");
        assert!(goes_in || queued(&reply), "{number}: {reply:?}");
    }
    for number in [1, 2] {
        client.ask(leave_queue(&resource, &owner(number))).await;
        client.ask(release_share(&resource, &owner(10 + number))).await;
    }
    let writer = from_place(client.acquire(&resource, &owner(13), LONG), &owner(3));
    assert!(matches!(client.ask(writer).await, Reply::Granted { .. }));
}

pub(super) async fn a_reader_does_not_pass_a_writer_who_waits<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = lock("r");
    assert_eq!(client.ask(share(&resource, &owner(1), LONG)).await, Reply::Shared);
    client.ask(client.queue(&resource, &owner(2), SECOND, LONG, false)).await;
    assert_eq!(
        client.ask(share(&resource, &owner(3), LONG)).await,
        Reply::Shared,
        "waiting readers block no reader"
    );
    client.ask(client.queue(&resource, &owner(4), SECOND, LONG, true)).await;
    let newcomer = client.ask(share(&resource, &owner(5), LONG)).await;
    assert!(queued(&newcomer), "{newcomer:?}");
    assert_eq!(
        client.ask(extend_share(&resource, &owner(1), LONG)).await,
        Reply::Extended,
        "a reader keeps its lease"
    );
}

pub(super) async fn a_repair_overtakes_no_waiter<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let (writers, readers) = (lock("writers"), lock("readers"));
    for resource in [&writers, &readers] {
        client.ask(client.queue(resource, &owner(1), SECOND, LONG, true)).await;
    }
    let writer = client.ask(extend(&writers, &owner(2), LONG, 70)).await;
    assert!(queued(&writer), "{writer:?}");
    assert_eq!(
        client.inspect(&writers).await,
        ResourceState { holder: None, counter: None, done: None, begun: None }
    );
    let reader = client.ask(extend_share(&readers, &owner(2), LONG)).await;
    assert!(queued(&reader), "{reader:?}");
    assert!(client.inspect(&readers).await.is_free());
    for resource in [&writers, &readers] {
        client.ask(leave_queue(resource, &owner(1))).await;
    }
    assert_eq!(client.ask(extend(&writers, &owner(2), LONG, 70)).await, Reply::Extended);
    assert_eq!(client.ask(extend_share(&readers, &owner(2), LONG)).await, Reply::Extended);
}

pub(super) async fn a_place_expires_and_is_kept_by_polling<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = lock("r");
    let began = client.now();
    client.ask(client.queue(&resource, &owner(1), 2 * SECOND, Duration::from_millis(1), true)).await;
    client.ask(client.queue(&resource, &owner(1), 2 * SECOND, Duration::from_millis(300), true)).await;
    client.ask(client.queue(&resource, &owner(1), 2 * SECOND, Duration::from_millis(1), true)).await;
    client.ask(client.queue(&resource, &owner(2), SECOND, LONG, true)).await;
    loop {
        let reply = client.ask(from_place(client.acquire(&resource, &owner(8), LONG), &owner(2))).await;
        if let Reply::Granted { .. } = reply {
            break;
        }
        assert!(queued(&reply), "{reply:?}");
        assert!(began.until(client.now()) < 10 * SECOND, "the dead head is never dropped");
        client.env.sleep(Duration::from_millis(5)).await;
    }
    let waited = began.until(client.now());
    assert!(waited >= Duration::from_millis(295), "the head was passed after {waited:?}");
}

pub(super) async fn a_place_is_left_by_its_ticket<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = lock("r");
    assert_eq!(client.ask(leave_queue(&resource, &owner(1))).await, Reply::Released(false));
    client.ask(client.queue(&resource, &owner(1), SECOND, LONG, true)).await;
    assert_eq!(client.ask(leave_queue(&resource, &owner(2))).await, Reply::Released(false));
    assert!(queued(&client.ask(client.acquire(&resource, &owner(7), LONG)).await));
    assert_eq!(client.ask(leave_queue(&resource, &owner(1))).await, Reply::Released(true));
    client.must_acquire(&resource, &owner(7), LONG).await;
}

pub(super) async fn a_wrong_wall_clock_gets_no_place<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = lock("r");
    let wall = client.wall().as_micros();
    let hour = 3_600_000_000;
    for (at, now) in [(wall, wall - hour), (wall, wall + hour), (wall + hour, wall), (0, 0), (u64::MAX, wall)]
    {
        let mut place = client.queue(&resource, &owner(1), SECOND, LONG, true);
        if let Request::Queue { at: began, now: clock, .. } = &mut place {
            (*began, *clock) = (at, now);
        }
        let reply = client.ask(place).await;
        assert!(matches!(reply, Reply::Refused(Refusal::Clock { .. })), "{at} {now}: {reply:?}");
    }
    let long_ago = client.queue(&resource, &owner(1), Duration::from_secs(86_400), LONG, true);
    assert_eq!(client.ask(long_ago).await, ahead(0), "a waiter may wait without limit");
}

pub(super) async fn a_node_limits_the_places_of_a_queue<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = lock("r");
    let many =
        (0..QUEUE_MAX as u64).map(|n| client.queue(&resource, &owner(n), SECOND, LONG, true)).collect();
    assert!(client.ask_all(many).await.replies.iter().all(|reply| matches!(reply, Reply::Queued { .. })));
    let one_more = owner(QUEUE_MAX as u64);
    let place = |client: &TestClient<N>, ticket: &Owner| client.queue(&resource, ticket, SECOND, LONG, true);
    let crowded = Reply::Refused(Refusal::Crowded { most: QUEUE_MAX as u32 });
    assert_eq!(client.ask(place(&client, &one_more)).await, crowded);
    // The entries that come first stay, in whichever order the waiters arrive.
    let earlier = client.queue(&resource, &one_more, 2 * SECOND, LONG, true);
    assert_eq!(client.ask(earlier).await, ahead(0));
    client.ask(leave_queue(&resource, &one_more)).await;
    let last = owner(QUEUE_MAX as u64 - 1);
    assert!(matches!(client.ask(place(&client, &last)).await, Reply::Queued { .. }), "it was left out");
    assert!(
        matches!(client.ask(place(&client, &owner(9))).await, Reply::Queued { .. }),
        "a stored place stays"
    );
    client.ask(leave_queue(&resource, &owner(9))).await;
    assert!(matches!(client.ask(place(&client, &one_more)).await, Reply::Queued { .. }));
}

pub(super) async fn a_ticket_without_a_place_has_no_right<N: Node>(node: N) {
    let mut client = TestClient::marked(node).await;
    let resource = lock("r");
    let asked = from_place(client.acquire(&resource, &owner(7), LONG), &owner(1));
    assert!(
        matches!(client.ask(asked).await, Reply::Granted { .. }),
        "without waiters any request is granted"
    );
    client.ask(release(&resource, &owner(7))).await;
    client.ask(client.queue(&resource, &owner(2), SECOND, LONG, true)).await;
    for asked in [
        from_place(client.acquire(&resource, &owner(8), LONG), &owner(1)),
        from_place(share(&resource, &owner(8), LONG), &owner(1)),
    ] {
        let reply = client.ask(asked).await;
        assert!(queued(&reply), "{reply:?}");
    }
}
