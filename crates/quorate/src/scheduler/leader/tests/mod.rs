//! Tests of leaders over memory nodes on the real clock: the rules of jobs, requests, open runs, and the
//! takeover by the next leader.

mod bell;
mod ends;
mod forgetting;
mod freeze;
mod opened;
mod requests;
mod scale;
mod stage;
mod versions;
