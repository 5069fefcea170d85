//! What every planner is: a request in, an answer or a fault out.
//!
//! Must never know: how the request came here.

use async_trait::async_trait;
use detent_protocol::Fault;
use detent_protocol::messages::{PlanAnswer, PlanRequest};

/// Makes plans.
#[async_trait]
pub trait Provider: Send + Sync + 'static {
    /// The next plan for the goal in `request`.
    ///
    /// Ends by itself and never tries again by itself. Fails with
    /// [`MODEL_UNAVAILABLE`](detent_protocol::Code::ModelUnavailable) where nobody
    /// answered, [`MODEL_MALFORMED`](detent_protocol::Code::ModelMalformed) where the
    /// answer is no plan, [`INPUT_TOO_LARGE`](detent_protocol::Code::InputTooLarge)
    /// where even the bare goal does not fit, and
    /// [`PLAN_INVALID`](detent_protocol::Code::PlanInvalid) for a faulty playbook.
    async fn plan(&self, request: &PlanRequest) -> Result<PlanAnswer, Fault>;
}
