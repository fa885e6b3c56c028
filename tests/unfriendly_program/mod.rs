//! Hostile input to the program: its arguments, its configuration, and node URLs, whose passwords no error may show. The
//! entry points of the libraries are in [`crate::unfriendly`]. This part is separate because the fuzz targets without it are
//! built in less time: the program has many dependencies.

mod arguments;
mod config;
mod duration;
mod secrets;

pub use arguments::arguments;
pub use config::config;
pub use duration::duration;
pub use secrets::{SECRET, node_url, secrets};

use crate::unfriendly::Door;

/// The entry points of the program.
pub const DOORS: [Door; 5] = [
    Door { name: "arguments", look: arguments, pieces: arguments::PIECES },
    Door { name: "config", look: config, pieces: config::PIECES },
    Door { name: "duration", look: duration, pieces: duration::PIECES },
    Door { name: "node_url", look: node_url, pieces: secrets::URL },
    Door { name: "secrets", look: secrets, pieces: secrets::PIECES },
];
