//! Opens a session with a server: a connection and a handshake.

use crate::{
    node::{Cause, Hello, Node, PushSender},
    redis::{RedisNode, RedisSession, fault, handshake, link::Link},
};

impl Node for RedisNode {
    type Session = RedisSession;

    fn name(&self) -> &str {
        self.canonical_url()
    }

    async fn open(&self, push_sender: PushSender) -> Result<(RedisSession, Hello), Cause> {
        let mut link = Link::dial(self, fault::RIGHTS).await?;
        let handshake = handshake::perform(&mut link, self.keys()).await?;
        let hello = handshake.hello.clone();
        Ok((RedisSession::start(self.env(), link, self.keys().clone(), handshake, push_sender), hello))
    }
}
