//! Hand-overs one after the other, for those who must not take more memory than planned.

use crate::{Device, Event};
use meshwork_queue::Gate;

/// While it lives, nothing begins that was handed over to its devices since [`one_at_a_time`].
#[derive(Debug)]
#[must_use]
pub struct Held {
    _gate: Gate,
}

/// Where one of several devices keeps the order ([`Device::set_in_order`]), has what is handed over to them from now on begin
/// when all of before has ended on all of them, and what this returns has been dropped. Neither an earlier hand-over nor whoever
/// hands over has a value in memory then that the new one does not know of.
pub fn one_at_a_time<'a>(devices: impl Iterator<Item = &'a Device> + Clone) -> Option<Held> {
    if devices.clone().nth(1).is_none() || !devices.clone().any(Device::is_in_order) {
        return None;
    }
    let gate = Gate::new();
    let opened = Event { task: gate.event().clone() };
    let events: Vec<Event> = devices.clone().map(Device::record_event).chain([opened]).collect();
    for device in devices {
        events.iter().for_each(|event| device.wait_event(event));
    }
    Some(Held { _gate: gate })
}
