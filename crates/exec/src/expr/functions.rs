//! The functions that an expression may call, as one table: `check` refuses every other call before anything runs, and
//! the book prints the table. A test holds it against the evaluator.

use onceflow_core::model::Type;
use std::{fmt, sync::LazyLock};

/// Every function: on each line one form, its result type, and a description. `a|b` is either type; `any` is a value of
/// any type. `map` stands for records, files, directories and JSON objects.
pub const FUNCTIONS: &str = "\
size(text|bytes|list|map) -> int · letters, bytes, elements or fields
text|bytes|list|map.size() -> int · the same
text.contains(text) -> bool · has this text in it
text.startsWith(text) -> bool · begins with this text
text.endsWith(text) -> bool · ends with this text
text.matches(text) -> bool · a regular expression (RE2) matches some part
matches(text, text) -> bool · the same
text.charAt(int) -> text · the letter at an index from 0
text.indexOf(text) -> int · where this text begins first, from 0; -1 if nowhere
text.indexOf(text, int) -> int · the same, from an index on
text.lastIndexOf(text) -> int · where this text begins last; -1 if nowhere
text.lastIndexOf(text, int) -> int · the same, up to an index
text.lowerAscii() -> text · A-Z in lower case
text.upperAscii() -> text · a-z in upper case
text.trim() -> text · without space at both ends
text.reverse() -> text · the letters from the last to the first
text.replace(text, text) -> text · every first text by the second
text.replace(text, text, int) -> text · at most so many of them
text.split(text) -> list<text> · the parts between separators
text.split(text, int) -> list<text> · at most so many parts
text.substring(int) -> text · from an index on
text.substring(int, int) -> text · from an index up to another, which is left out
text.format(list) -> text · `%s`, `%d`, `%f`, `%.2f` and so on, replaced by the elements
list.join() -> text · texts put together
list.join(text) -> text · texts put together with a separator
list.slice(int, int) -> same · from an index up to another, which is left out
list.flatten() -> list · lists in it replaced by their elements
list.flatten(int) -> list · the same, so many levels deep
list.distinct() -> same · every value once
list.reverse() -> same · from the last to the first
list.sort() -> same · in order; elements must be comparable
lists.range(int) -> list<int> · 0, 1, 2 and so on, so many
math.ceil(float) -> float · the whole number above
math.floor(float) -> float · the whole number below
math.round(float) -> float · the nearest whole number
math.trunc(float) -> float · without what follows the point
math.isInf(float) -> bool · is infinite
math.isNaN(float) -> bool · is no number
math.isFinite(float) -> bool · is neither
math.abs(int) -> int · without its sign
math.abs(float) -> float · without its sign
math.abs(uint) -> uint · itself
math.sign(int) -> int · -1, 0 or 1
math.sign(float) -> float · -1.0, 0.0 or 1.0
math.sign(uint) -> uint · 0 or 1
math.sqrt(int|float|uint) -> float · the square root
math.bitAnd(int, int) -> int · bit by bit
math.bitAnd(uint, uint) -> uint · bit by bit
math.bitOr(int, int) -> int · bit by bit
math.bitOr(uint, uint) -> uint · bit by bit
math.bitXor(int, int) -> int · bit by bit
math.bitXor(uint, uint) -> uint · bit by bit
math.bitNot(int) -> int · bit by bit
math.bitNot(uint) -> uint · bit by bit
math.bitShiftLeft(int|uint, int) -> same · so many bits
math.bitShiftRight(int|uint, int) -> same · so many bits
int(int|uint|float|text) -> int · as a whole number
uint(int|uint|float|text) -> uint · as a whole number that is not negative
double(int|uint|float|text) -> float · as a number
string(text|bool|int|uint|float|bytes) -> text · as text
bool(bool|text) -> bool · `true` or `false`
bytes(text|bytes) -> bytes · the bytes of a text
dyn(any) -> any · itself, of a type that is not checked
type(any) -> type · its type: `type(x) == int`
optional.hasValue() -> bool · `x.?field` and `x[?i]` found something
optional.value() -> any · what they found
optional.orValue(any) -> any · what they found, or this
optional.or(any) -> any · the first that found something
";

/// Forms that bind a name `x` of their own, or take any number of arguments.
pub const MACROS: &str = "\
has(value.field) -> bool · the field is there
list|map.all(x, bool) -> bool · it holds for every element
list|map.exists(x, bool) -> bool · it holds for some element
list|map.exists_one(x, bool) -> bool · it holds for exactly one
list|map.existsOne(x, bool) -> bool · the same
list|map.map(x, any) -> list · the results of an expression for every element
list|map.map(x, bool, any) -> list · the same, of those for which it holds
list|map.filter(x, bool) -> list · the elements for which it holds
list.sortBy(x, any) -> same · in the order of a key
math.greatest(number…) -> number · the largest; also of one list
math.least(number…) -> number · the smallest; also of one list
";

/// Every operator, from the one that binds most to the one that binds least.
pub const OPERATORS: &str = "\
x.field x[i] x.?field x[?i] f(x)
!x -x
x * y x / y x % y
x + y x - y
x == y x != y x < y x <= y x > y x >= y x in y
x && y
x || y
c ? x : y
";

/// The type of a value during evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CelType {
    /// Not known before it runs.
    Any,
    /// True or false.
    Bool,
    /// A whole number.
    Int,
    /// A whole number that is not negative; `1u` in an expression.
    Uint,
    /// A number.
    Float,
    /// Text.
    Text,
    /// Bytes.
    Bytes,
    /// A list.
    List,
    /// A record, a file, a directory, an object.
    Map,
    /// A type.
    Type,
    /// The result of `x.?field`.
    Optional,
}

const NAMES: [(&str, CelType); 11] = [
    ("any", CelType::Any),
    ("bool", CelType::Bool),
    ("int", CelType::Int),
    ("uint", CelType::Uint),
    ("float", CelType::Float),
    ("text", CelType::Text),
    ("bytes", CelType::Bytes),
    ("list", CelType::List),
    ("map", CelType::Map),
    ("type", CelType::Type),
    ("optional", CelType::Optional),
];

impl CelType {
    /// Returns the type that a value of a port has in an expression. An option counts as its inner type.
    pub(super) fn of(ty: Option<&Type>) -> Self {
        match ty {
            None | Some(Type::Json | Type::Unit | Type::Named(_)) => CelType::Any,
            Some(Type::Bool) => CelType::Bool,
            Some(Type::Int) => CelType::Int,
            Some(Type::Float) => CelType::Float,
            Some(Type::Text) => CelType::Text,
            Some(Type::Bytes) => CelType::Bytes,
            Some(Type::List(_)) => CelType::List,
            Some(Type::File | Type::Directory | Type::Record(_)) => CelType::Map,
            Some(Type::Option(inner)) => CelType::of(Some(inner)),
        }
    }

    /// A value of this type may be of the other: they are equal, or one is not known.
    pub(super) fn may_be(self, other: CelType) -> bool {
        self == other || self == CelType::Any || other == CelType::Any
    }

    pub(super) fn is_number(self) -> bool {
        matches!(self, CelType::Any | CelType::Int | CelType::Uint | CelType::Float)
    }
}

impl fmt::Display for CelType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, _) = NAMES.iter().find(|(_, ty)| ty == self).expect("every type has a name");
        f.write_str(name)
    }
}

/// The result of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Gives {
    /// The type of its first argument, or of the value a method is called on.
    Same,
    /// A type that ports have.
    Port(Type),
    /// Not known, or no type of a port.
    Other,
}

/// One line of [`FUNCTIONS`].
#[derive(Clone, Debug)]
struct Form {
    /// The name with its family: `math.abs`.
    name: &'static str,
    is_method: bool,
    /// The types accepted for each argument; a method's receiver comes first.
    takes: Vec<Vec<CelType>>,
    gives: Gives,
}

static FORMS: LazyLock<Vec<Form>> = LazyLock::new(|| FUNCTIONS.lines().map(Form::parse).collect());

impl Form {
    fn parse(line: &'static str) -> Self {
        let (shown, rest) = line.split_once(" -> ").expect("a function has a result");
        let (gives, _) = rest.split_once(" · ").expect("a function says what it gives");
        let (head, args) = shown.split_once('(').expect("a function has brackets");
        let types = |text: &str| -> Vec<CelType> {
            let named = |name: &str| NAMES.iter().find(|(known, _)| *known == name).expect("a type of the table").1;
            text.split('|').map(named).collect()
        };
        let family = head.split_once('.').is_some_and(|(before, _)| super::FAMILIES.contains(&before));
        let (receiver, name) = match head.split_once('.') {
            Some((receiver, name)) if !family => (Some(receiver), name),
            _ => (None, head),
        };
        let args = args.trim_end_matches(')').split(", ").filter(|arg| !arg.is_empty());
        let takes = receiver.into_iter().chain(args).map(types).collect();
        let gives = match gives {
            "same" => Gives::Same,
            "bool" => Gives::Port(Type::Bool),
            "int" => Gives::Port(Type::Int),
            "float" => Gives::Port(Type::Float),
            "text" => Gives::Port(Type::Text),
            "bytes" => Gives::Port(Type::Bytes),
            "list<text>" => Gives::Port(Type::list(Type::Text)),
            "list<int>" => Gives::Port(Type::list(Type::Int)),
            _ => Gives::Other,
        };
        Form { name, is_method: receiver.is_some(), takes, gives }
    }

    fn accepts(&self, is_method: bool, args: &[CelType]) -> bool {
        let fits = |(allowed, given): (&Vec<CelType>, &CelType)| allowed.iter().any(|ty| ty.may_be(*given));
        self.is_method == is_method && self.takes.len() == args.len() && self.takes.iter().zip(args).all(fits)
    }
}

/// A call that fails for all values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WrongCall {
    /// The problem, in plain words.
    pub(super) message: String,
    /// Advice how to correct it.
    pub(super) hint: String,
}

/// Returns the result type of a call, if it can be inferred; the receiver of a method comes first in `args`.
///
/// # Errors
/// If there is no such function, or it takes other arguments.
pub(super) fn call(name: &str, is_method: bool, args: &[Option<Type>]) -> Result<Option<Type>, WrongCall> {
    assert!(!is_method || !args.is_empty(), "a method is called on something, and that comes first");
    let types: Vec<_> = args.iter().map(|ty| CelType::of(ty.as_ref())).collect();
    let mut fitting = FORMS.iter().filter(|form| form.name == name && form.accepts(is_method, &types));
    let Some(first) = fitting.next() else { return Err(wrong(name, is_method, args)) };
    let given = |form: &Form| match &form.gives {
        Gives::Same => args.first().cloned().flatten(),
        Gives::Port(ty) => Some(ty.clone()),
        Gives::Other => None,
    };
    // With an argument of unknown type, several forms may be meant.
    let result = given(first);
    Ok(result.filter(|ty| fitting.all(|form| given(form).as_ref() == Some(ty))))
}

fn wrong(name: &str, is_method: bool, types: &[Option<Type>]) -> WrongCall {
    let named: Vec<_> = forms().filter(|(known, _)| *known == name).map(|(_, shown)| shown).collect();
    if named.is_empty() {
        return WrongCall { message: format!("there is no function `{name}`"), hint: nearest(name) };
    }
    let hint = named.iter().map(|shown| format!("`{shown}`")).collect::<Vec<_>>().join(", ");
    let all = || FORMS.iter().filter(|form| form.name == name);
    let args = types.len() - usize::from(is_method);
    let message = match () {
        () if all().next().is_some() && all().all(|form| form.is_method != is_method) => match is_method {
            true => format!("`{name}` is not called on a value"),
            false => format!("`{name}` is called on a value"),
        },
        () if all().any(|form| form.is_method == is_method && form.takes.len() == types.len()) => {
            let given: Vec<_> = types.iter().map(shown).collect();
            match (is_method, &given[..]) {
                (true, [receiver]) => format!("`{name}` is not called on {receiver}"),
                (true, [receiver, args @ ..]) => format!("`{name}` of {receiver} does not take ({})", args.join(", ")),
                _ => format!("`{name}` does not take ({})", given.join(", ")),
            }
        }
        () => format!("`{name}` does not take {args} {}", if args == 1 { "argument" } else { "arguments" }),
    };
    WrongCall { message, hint }
}

/// Formats a type as a flow file names it; `any` if it is not known.
pub(super) fn shown(ty: &Option<Type>) -> String {
    ty.as_ref().map_or_else(|| CelType::Any.to_string(), Type::to_string)
}

/// Returns all forms, each with its name, which includes the family.
fn forms() -> impl Iterator<Item = (&'static str, &'static str)> {
    FUNCTIONS.lines().chain(MACROS.lines()).map(|line| {
        let shown = line.split_once(" -> ").map_or(line, |(shown, _)| shown);
        let head = shown.split_once('(').map_or(shown, |(head, _)| head);
        let name = match head.split_once('.') {
            Some((before, name)) if !super::FAMILIES.contains(&before) => name,
            _ => head,
        };
        (name, shown)
    })
}

/// Function names of other languages, with the equivalent here.
const ELSEWHERE: [(&str, &str); 14] = [
    ("len", "size"),
    ("length", "size"),
    ("count", "size"),
    ("upper", "upperAscii"),
    ("toupper", "upperAscii"),
    ("touppercase", "upperAscii"),
    ("lower", "lowerAscii"),
    ("tolower", "lowerAscii"),
    ("tolowercase", "lowerAscii"),
    ("strip", "trim"),
    ("str", "string"),
    ("float", "double"),
    ("max", "math.greatest"),
    ("min", "math.least"),
];

/// Suggests the function that was probably meant.
fn nearest(name: &str) -> String {
    let bare = |name: &str| name.rsplit('.').next().unwrap_or(name).to_lowercase();
    let wanted = bare(name);
    let limit = wanted.chars().count().div_ceil(3).min(3);
    let distance = onceflow_core::model::check::names::distance;
    let same = ELSEWHERE.iter().find(|(other, _)| *other == wanted).map(|(_, ours)| *ours);
    let same = same.and_then(|ours| forms().find(|(known, _)| *known == ours)).map(|(_, shown)| shown);
    let near = forms().map(|(known, shown)| (distance(&wanted, &bare(known)), shown)).min();
    match same.or_else(|| near.filter(|(far, _)| *far <= limit).map(|(_, shown)| shown)) {
        Some(shown) => format!("did you mean `{shown}`?"),
        None => String::from("`onceflow error OF0141` lists all functions"),
    }
}

#[cfg(test)]
mod tests;
