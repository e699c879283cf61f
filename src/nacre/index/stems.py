"""English words without their endings, as FTS5's `porter` tokenizer stores them, and words that say nothing.

The stemmer is M. F. Porter's algorithm of 1980 as SQLite has it; a test compares the two. FTS5 stems what is searched
by itself: the stems are needed here to mark matches in a snippet and to look up other spellings.
"""

from __future__ import annotations

from functools import lru_cache

_MIN_BYTES, _MAX_BYTES = 3, 64

_PAIRS = (
    "ational>ate tional>tion enci>ence anci>ance izer>ize logi>log bli>ble alli>al entli>ent eli>e ousli>ous "
    "ization>ize ation>ate ator>ate alism>al iveness>ive fulness>ful ousness>ous aliti>al iviti>ive biliti>ble"
)
_STEP_2 = dict(pair.split(">") for pair in _PAIRS.split())
_STEP_3 = {"icate": "ic", "ative": "", "alize": "al", "iciti": "ic", "ical": "ic", "ful": "", "ness": ""}
_ENDINGS = "al ance ence er ic able ible ant ement ment ent ion ou ism ate iti ous ive ize"
_STEP_4 = frozenset(_ENDINGS.split())


@lru_cache(maxsize=1 << 16)
def stem(word: str) -> str:
    """A word in lower case without its ending."""
    if not _MIN_BYTES <= len(word.encode("utf-8", "replace")) <= _MAX_BYTES:
        return word
    # Plurals.
    if word.endswith(("sses", "ies")) and word not in ("sses", "ies"):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith("ss"):
        word = word[:-1]
    word = _past(word)
    if word.endswith("y") and _has_vowel(word[:-1]):
        word = f"{word[:-1]}i"
    word = _replace(word, _STEP_2)
    word = _replace(word, _STEP_3)
    # Endings that nothing stands in for.
    ending = max((one for one in _STEP_4 if word.endswith(one)), key=len, default="")
    rest = word.removesuffix(ending)
    if ending and _measure(rest) > 1 and (ending != "ion" or rest.endswith(("s", "t"))):
        word = rest
    # A silent `e`, and one `l` for two.
    if word.endswith("e"):
        measure = _measure(word[:-1])
        if measure > 1 or (measure == 1 and not _is_short(word[:-1])):
            word = word[:-1]
    return word[:-1] if word.endswith("ll") and _measure(word[:-1]) > 1 else word


def _shape(word: str) -> str:
    """The word as consonants and vowels; a `y` after a consonant is a vowel."""
    shape = ""
    for char in word:
        is_vowel = char in "aeiou" or (char == "y" and shape[-1:] == "c")
        shape += "v" if is_vowel else "c"
    return shape


def _measure(word: str) -> int:
    """How many times consonants follow vowels."""
    return _shape(word).count("vc")


def _has_vowel(word: str) -> bool:
    return "v" in _shape(word)


def _is_short(word: str) -> bool:
    """Tell whether a word ends like `hop`, to which an `e` may belong."""
    return _shape(word).endswith("cvc") and word[-1] not in "wxy"


def _past(word: str) -> str:
    if word.endswith("eed") and word != "eed":
        return word[:-1] if _measure(word[:-3]) > 0 else word
    ending = next((one for one in ("ed", "ing") if word.endswith(one)), "")
    if not ending or not _has_vowel(rest := word[: -len(ending)]):
        return word
    if rest.endswith(("at", "bl", "iz")):
        return f"{rest}e"
    if len(rest) > 1 and rest[-1] == rest[-2] and _shape(rest)[-1] == "c" and rest[-1] not in "lsz":
        return rest[:-1]
    return f"{rest}e" if _measure(rest) == 1 and _is_short(rest) else rest


def _replace(word: str, endings: dict[str, str]) -> str:
    """Put a shorter ending in place of the longest that the word has, if enough is left before it."""
    ending = max((one for one in endings if word.endswith(one)), key=len, default="")
    if not ending or _measure(word[: -len(ending)]) == 0:
        return word
    return word[: -len(ending)] + endings[ending]


_WORDS = (
    "a about after again all also am an and any are as at be because been before being but by can could d did "
    "do does doing done during each else ever every few for from further get gets got had has have having he "
    "her here hers him his how i if in into is it its just let lets ll m may me might mine more most much "
    "must my no nor not of off on once one only or other our ours out over own per please re s said same say "
    "says shall she should since so some still such t tell than that the their theirs them then there these "
    "they this those through to too under until up upon us ve very via was we were what when where which "
    "while who whom whose why will with within would yes you your yours "
    # German, French, Spanish, Italian, Portuguese, Dutch: what is hardly ever meant in English.
    "aan aber al als ao au auch auf aus aux avec bei bij ce ces cette che chi como con cosa cuando cui cómo "
    "da dal dans dass dat de del della delle dem den der des deze di dich dir dit donde du dónde e een ein "
    "eine einem einen einer eines el ela ele ella elle ellos em en er es est esta este está et eu foi fue für "
    "geen gli haar habe haben hatte heb hebben het hij ho hoe ich ihr ik il ils im isso ist ja je kan kann "
    "kein keine la las le les leur lo los lui maar mais mein meine mes meu mi mich mijn minha mio mir mit moi "
    "muy más na naar nach nada nas ne nel nella nem nicht niet noch nog noi non nos notre nous num nur não o "
    "oder ook op os ou où par para pas pela pelo pero più por porque qu quando que quem qui quien quién qué "
    "sa sans se sein seine ses seu sich sie sind sobre sono sont su sua sur sus são ta también te tem tes "
    "tiene toen toi tra tu uit um uma un una und une uno uns unser voce você vom von voor vor vos votre vous "
    "waar wann warum wat wel wenn wer werd werden wie wij wir wird wo wurde y ya yo zal ze zich zijn zu zum "
    "zur être über "
)
_STOP_WORDS = frozenset(_WORDS.split())
# What English bends without an ending.
_GROUPS = (
    "mouse mice, man men, woman women, child children, foot feet, tooth teeth, goose geese, person people, wife "
    "wives, knife knives, leaf leaves, life lives, go goes going went gone, buy bought, see saw seen, take took "
    "taken, make made, give gave given, write wrote written, meet met, find found, tell told, think thought, "
    "bring brought, teach taught, catch caught, sell sold, send sent, spend spent, build built, lose lost, leave "
    "left, feel felt, keep kept, sleep slept, win won, run ran, begin began begun, drink drank drunk, drive drove "
    "driven, ride rode ridden, speak spoke spoken, break broke broken, choose chose chosen, fall fell fallen, fly "
    "flew flown, grow grew grown, know knew known, draw drew drawn, eat ate eaten, wear wore worn, become became, "
    "come came, sing sang sung, swim swam swum, hear heard, hold held, pay paid, sit sat, stand stood, understand "
    "understood, fight fought"
)
_IRREGULAR = {stem(word): group.split() for group in _GROUPS.split(", ") for word in group.split()}


def is_stop_word(word: str) -> bool:
    """Tell whether a word says nothing of what a text is about."""
    return word in _STOP_WORDS


def irregular(word: str) -> list[str]:
    """The other forms of a word that differ by more than an ending."""
    return [other for other in _IRREGULAR.get(stem(word), ()) if stem(other) != stem(word)]
