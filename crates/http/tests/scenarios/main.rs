//! Scenarios of the HTTP server: clients and origins on loopback that do what a story says, and the real server between them.
//!
//! | module | tells of |
//! |---|---|
//! | `joining` | clients that join an answer while it comes |
//! | `breaking` | origins that die while they send |
//! | `leaving` | clients that leave before they have it all |
//! | `kept` | what is kept whole: parts, conditions, who wants nothing but it, what a 304 makes of it |
//! | `ranges` | parts of a body that still comes |
//! | `variants` | responses that are chosen by more than their URL, and those that are not to be shared |
//! | `own` | what is one client's own, and reaches no other |
//! | `odd` | what is rare, or not allowed and seen |
//! | `statuses` | what says nothing of caching, and is fresh by a rule for its status |
//! | `renewing` | what is stale, and what is outdated meanwhile |
//! | `slow` | clients that are slow, or do nothing at all |
//! | `memory` | memory that is not enough |
//! | `pipelining` | requests that do not wait for the answers to those before |
//! | `trailers` | fields that come after a body |
//! | `uploads` | bodies of requests |
//! | `reuse` | connections to origins, and origins that cannot be had |
//! | `smuggling` | requests by which one smuggles another past a server |
//! | `schedules` | orders of all these that nobody thought of |
//! | `changing` | other settings while the server serves |
//! | `ending` | the end of the server |

mod breaking;
mod changing;
mod ending;
mod joining;
mod kept;
mod leaving;
mod memory;
mod odd;
mod own;
mod pipelining;
mod ranges;
mod renewing;
mod reuse;
mod schedules;
mod slow;
mod smuggling;
mod statuses;
mod support;
mod trailers;
mod uploads;
mod variants;
