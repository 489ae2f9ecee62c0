//! Casting: what a model meant, brought to the types that the schema asks for.
//!
//! The reference's rules come first: text becomes an integer, number or boolean, scalars become text.
//! Beyond them, JSON text becomes the container that is asked for, `5.0` becomes 5, and casting looks
//! through `$ref`, `allOf`, `anyOf` and `oneOf`. A value that is right as it stands is never
//! touched, nor is one that cannot be cast: refusing is the validator's business. `null` stays.

use jsonschema::json::{Array as _, Node as _, Object as _};

use super::{
    MAX_DEPTH,
    plan::{Additional, Plan, Plans, Type},
    rebuild::{Edit, Edits, Kind, Name, Rebuild},
};

/// How many values may be looked at for one call: nested branches multiply.
const BUDGET: usize = 2_000_000;
/// A level of nesting may take three steps: `anyOf`, `$ref`, member.
const MAX_STEPS: usize = 3 * MAX_DEPTH;
/// Integers beyond this are not exact as floats.
const EXACT: f64 = 9_007_199_254_740_992.0;
/// Longer texts are no numbers; Python's own limit is 4,300 digits.
const MAX_DIGITS: usize = 4_300;

/// One casting of one value.
pub(super) struct Caster<'p, R: Rebuild> {
    plans: &'p Plans<R>,
    /// Whether optional members that are null without leave are dropped.
    drop_nulls: bool,
    budget: usize,
}

impl<'p, R: Rebuild> Caster<'p, R> {
    pub(super) const fn new(plans: &'p Plans<R>, drop_nulls: bool) -> Self {
        Self { plans, drop_nulls, budget: BUDGET }
    }

    /// The cast value, or `None` when nothing changes.
    pub(super) fn cast(&mut self, node: &R::Node<'_>) -> Option<R::Owned> {
        self.value(0, node, 0)
    }

    /// Whether all errors of a value can be collected in bounded time: the validator follows every
    /// branch, and branches within branches multiply.
    pub(super) fn is_bounded(&mut self, node: &R::Node<'_>) -> bool {
        self.follow(0, node, 0);
        self.budget > 0
    }

    fn follow(&mut self, plan: usize, node: &R::Node<'_>, depth: usize) {
        if depth > MAX_STEPS || !self.spend() {
            return;
        }
        let plan = self.plans.get(plan);
        if let Some(object) = node.as_object() {
            for property in &plan.properties {
                if let Some(member) = object.get(&property.key) {
                    self.follow(property.plan, &member, depth + 1);
                }
            }
            if let Additional::Like(additional) = plan.additional {
                for (_, member) in object.members() {
                    self.follow(additional, &member, depth + 1);
                }
            }
        } else if let (Some(items), Some(array)) = (plan.items, node.as_array()) {
            for element in array.elements() {
                self.follow(items, &element, depth + 1);
            }
        }
        for part in plan.all.iter().chain(plan.any.iter().flatten()) {
            self.follow(*part, node, depth + 1);
        }
    }

    fn spend(&mut self) -> bool {
        self.budget = self.budget.saturating_sub(1);
        self.budget > 0
    }

    fn value(&mut self, plan: usize, node: &R::Node<'_>, depth: usize) -> Option<R::Owned> {
        let kind = R::kind(node);
        if kind == Kind::Null || depth > MAX_STEPS || !self.spend() {
            return None;
        }
        let plan = self.plans.get(plan);
        let mut current = convert::<R>(plan, node, kind);
        if plan.properties.is_empty()
            && plan.items.is_none()
            && plan.prefix.is_empty()
            && plan.all.is_empty()
            && plan.any.is_empty()
            && !matches!(plan.additional, Additional::Like(_))
        {
            return current;
        }
        self.step(&mut current, node, |caster, node| caster.inside(plan, node, depth));
        for part in &plan.all {
            self.step(&mut current, node, |caster, node| caster.value(*part, node, depth + 1));
        }
        for branches in &plan.any {
            self.step(&mut current, node, |caster, node| caster.branch(branches, node, depth + 1));
        }
        current
    }

    /// Apply `change` to what the value has become so far.
    fn step(
        &mut self,
        current: &mut Option<R::Owned>,
        node: &R::Node<'_>,
        change: impl Fn(&mut Self, &R::Node<'_>) -> Option<R::Owned>,
    ) {
        let next = match current {
            Some(owned) => change(self, &R::view(owned, node)),
            None => change(self, node),
        };
        if next.is_some() {
            *current = next;
        }
    }

    fn inside(&mut self, plan: &'p Plan<R>, node: &R::Node<'_>, depth: usize) -> Option<R::Owned> {
        match R::kind(node) {
            Kind::Array => self.elements(plan, node, depth),
            Kind::Object => self.members(plan, node, depth),
            _ => None,
        }
    }

    fn elements(&mut self, plan: &'p Plan<R>, node: &R::Node<'_>, depth: usize) -> Option<R::Owned> {
        if plan.items.is_none() && plan.prefix.is_empty() {
            return None;
        }
        // Conversions may run code of the host language: the array must outlive them.
        let held = R::own(node);
        let node = &R::view(&held, node);
        let mut edits = Vec::new();
        for (index, element) in node.as_array()?.elements().enumerate() {
            let Some(plan) = plan.prefix.get(index).copied().or(plan.items) else { break };
            if let Some(value) = self.value(plan, &element, depth + 1) {
                edits.push((index, value));
            }
        }
        (!edits.is_empty()).then(|| R::with_elements(node, edits))
    }

    fn members(&mut self, plan: &'p Plan<R>, node: &R::Node<'_>, depth: usize) -> Option<R::Owned> {
        let object = node.as_object()?;
        let mut edits: Edits<'p, R> = Vec::new();
        for property in &plan.properties {
            let Some(member) = object.get(&property.key) else { continue };
            if R::kind(&member) == Kind::Null {
                if self.drop_nulls && !property.required && !self.plans.get(property.plan).admits_null {
                    edits.push((Name::Prepared(&property.key), Edit::Remove));
                }
            } else if let Some(value) = self.value(property.plan, &member, depth + 1) {
                edits.push((Name::Prepared(&property.key), Edit::Set(value)));
            }
        }
        if let Additional::Like(additional) = plan.additional {
            for (name, member) in object.members() {
                let name: &str = name.as_ref();
                if plan.names.contains_key(name) {
                    continue;
                }
                if let Some(value) = self.value(additional, &member, depth + 1) {
                    edits.push((Name::Made(R::prepare_key(name)), Edit::Set(value)));
                }
            }
        }
        (!edits.is_empty()).then(|| R::with_members(node, edits))
    }

    /// The first branch that the value fits as it is keeps it; else the first that it fits once cast.
    fn branch(&mut self, branches: &'p [usize], node: &R::Node<'_>, depth: usize) -> Option<R::Owned> {
        if let Some(fitting) = branches.iter().find(|branch| self.fits(**branch, node, depth)) {
            return self.value(*fitting, node, depth);
        }
        branches.iter().find_map(|branch| {
            let cast = self.value(*branch, node, depth)?;
            let fits = self.fits(*branch, &R::view(&cast, node), depth);
            fits.then_some(cast)
        })
    }

    /// Whether a value has the shape that a plan asks for; the validator has the last word.
    fn fits(&mut self, plan: usize, node: &R::Node<'_>, depth: usize) -> bool {
        let plan = self.plans.get(plan);
        let kind = R::kind(node);
        if kind == Kind::Null {
            return plan.admits_null;
        }
        if plan.never || depth > MAX_STEPS || !self.spend() {
            return false;
        }
        if !plan.types.is_empty() && !plan.types.iter().any(|wanted| wanted.admits(kind)) {
            return false;
        }
        if let Some(values) = &plan.values
            && (kind == Kind::Other || !values.iter().any(|value| node.equals_value(value)))
        {
            return false;
        }
        let inside = match kind {
            Kind::Object => self.members_fit(plan, node, depth),
            Kind::Array => self.elements_fit(plan, node, depth),
            _ => true,
        };
        inside
            && plan.all.iter().all(|part| self.fits(*part, node, depth + 1))
            && plan
                .any
                .iter()
                .all(|branches| branches.iter().any(|branch| self.fits(*branch, node, depth + 1)))
    }

    fn members_fit(&mut self, plan: &'p Plan<R>, node: &R::Node<'_>, depth: usize) -> bool {
        let Some(object) = node.as_object() else { return false };
        if plan.required.iter().any(|key| object.get(key).is_none()) {
            return false;
        }
        for property in &plan.properties {
            let Some(member) = object.get(&property.key) else { continue };
            let dropped = self.drop_nulls && !property.required && R::kind(&member) == Kind::Null;
            if !dropped && !self.fits(property.plan, &member, depth + 1) {
                return false;
            }
        }
        match plan.additional {
            Additional::Any => true,
            Additional::Closed => object.members().all(|(name, _)| plan.names.contains_key(name.as_ref())),
            Additional::Like(additional) => object.members().all(|(name, member)| {
                plan.names.contains_key(name.as_ref()) || self.fits(additional, &member, depth + 1)
            }),
        }
    }

    fn elements_fit(&mut self, plan: &'p Plan<R>, node: &R::Node<'_>, depth: usize) -> bool {
        let Some(array) = node.as_array() else { return false };
        array.elements().enumerate().all(|(index, element)| {
            plan.prefix
                .get(index)
                .copied()
                .or(plan.items)
                .is_none_or(|plan| self.fits(plan, &element, depth + 1))
        })
    }
}

/// Bring a value to the first type that it can be brought to, unless it is of one already.
fn convert<R: Rebuild>(plan: &Plan<R>, node: &R::Node<'_>, kind: Kind) -> Option<R::Owned> {
    match plan.types.as_slice() {
        [] => None,
        [only] => {
            if only.admits(kind) {
                None
            } else {
                to_type::<R>(*only, node, kind)
            }
        }
        types => {
            if types.iter().any(|wanted| wanted.admits(kind)) {
                return None;
            }
            types.iter().find_map(|wanted| to_type::<R>(*wanted, node, kind))
        }
    }
}

fn to_type<R: Rebuild>(wanted: Type, node: &R::Node<'_>, kind: Kind) -> Option<R::Owned> {
    match (wanted, kind) {
        (Type::String, _) => R::to_text(node),
        (Type::Integer, Kind::Number) => R::to_integer(node),
        (_, Kind::String) => from_text::<R>(wanted, node, &R::text(node)?),
        _ => None,
    }
}

fn from_text<R: Rebuild>(wanted: Type, node: &R::Node<'_>, text: &str) -> Option<R::Owned> {
    match wanted {
        Type::Boolean => match text.to_lowercase().as_str() {
            "true" | "1" | "yes" => Some(R::make_boolean(node, true)),
            "false" | "0" | "no" => Some(R::make_boolean(node, false)),
            _ => None,
        },
        Type::Integer => {
            let text = text.trim();
            // "5.0" is 5, as 5.0 is.
            let whole = match text.split_once('.') {
                Some((whole, fraction)) if !fraction.is_empty() && fraction.bytes().all(|b| b == b'0') => {
                    whole
                }
                _ => text,
            };
            is_integer(whole).then(|| R::make_integer(node, whole)).flatten()
        }
        Type::Number => {
            let text = text.trim();
            let value: f64 = text.parse().ok()?;
            if is_integer(text) && value.abs() >= EXACT {
                return R::make_integer(node, text).or_else(|| R::make_float(node, value));
            }
            R::make_float(node, value)
        }
        Type::Array | Type::Object => {
            let opening = if wanted == Type::Array { '[' } else { '{' };
            if !text.trim_start().starts_with(opening) {
                return None;
            }
            let decoded = R::decode(node, text.trim()).ok()?;
            let kind = R::kind(&R::view(&decoded, node));
            wanted.admits(kind).then_some(decoded)
        }
        Type::String => None,
    }
}

fn is_integer(text: &str) -> bool {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    !digits.is_empty() && digits.len() <= MAX_DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit())
}
