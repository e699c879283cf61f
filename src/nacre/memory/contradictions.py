"""Which facts a new one takes the place of: only those that cannot hold together with it.

Two facts about one subject usually both hold: a dog and a cat, two allergies, two standing instructions. A new fact
replaces an old one on evidence alone; without any, both are kept. No model is asked.
"""

from __future__ import annotations

import re
from functools import lru_cache

from msgspec import Struct

from nacre.memory.text_match import is_negated, language_of, normal, salient, stems_of, tokens


def _words(*lines: str) -> frozenset[str]:
    return frozenset(word for line in lines for word in line.split())


# Words that do not say whom a fact is about.
NOBODY = _words(
    "the a an user users s my our your his her their i we he she they it you me of der die das des dem den ein eine",
    "einen einem nutzer nutzerin nutzers benutzer benutzerin ich mein meine sein seine ihr ihre le la les l un une",
    "de du d utilisateur utilisatrice je mon ma sa el los las lo uno una del usuario usuaria yo mi su always never",
    "immer nie niemals toujours jamais siempre nunca please bitte",
)
ARTICLES = _words("the a an der die das den dem ein eine einen einem le la les un une el los las una")
NOW = _words(
    "now currently again today already just recently meanwhile presently jetzt nun derzeit momentan aktuell",
    "inzwischen wieder mittlerweile maintenant désormais actuellement ahora actualmente ya anymore",
)
ALSO = _words(
    "also too another additionally besides second both auch außerdem zusätzlich zweite zweiten zweiter ebenfalls",
    "aussi également deuxième también además otro otra segundo segunda",
)

# Said of many things at a time, and of one thing at a time.
MANY = _words(
    "has have had own owns owned like likes liked love loves loved enjoy enjoys hate hates dislike dislikes",
    "allergic speak speaks play plays know knows read reads reading collect collects visit visits visited want",
    "wants need needs plan plans use uses using used take takes drink drinks eat eats study studies studying learn",
    "learns learning interested fears watch watches cook cooks grow grows practises practices supports contains",
    "includes wrote bought hat haben besitzt mag liebt hasst allergisch spricht sprechen spielt kann kennt liest",
    "sammelt besucht will möchte braucht plant nutzt benutzt verwendet nimmt trinkt isst lernt studiert",
    "interessiert possède aime adore déteste allergique parle joue connaît lit collectionne visite veut prévoit",
    "utilise prend boit mange apprend étudie fait tiene posee gusta gustan encanta encantan odia alérgico alérgica",
    "habla juega toca conoce lee colecciona quiere necesita usa utiliza toma bebe come aprende estudia practica",
)
ONE = _words(
    "insured enrolled registered hosted deployed versichert lives live living resides based located works work",
    "working employed named called born drives weighs earns costs starts begins ends closes opens runs listens",
    "expires belongs reports goes meets wohnt lebt arbeitet heißt heisst geboren fährt wiegt verdient kostet",
    "beginnt endet läuft hört gehört trifft habite vit réside travaille appelle né née conduit pèse gagne coûte",
    "commence finit vive reside trabaja llama nacido nació conduce pesa gana cuesta empieza termina",
)
NAMED = _words("named called heißt heisst appelle llama")
USE = _words("use be write verwende benutze schreibe utilise utilisez écris usa escribe")
WITHOUT = re.compile(r"\b(?:without|ohne|sans|sin)\b", re.IGNORECASE)
WITH_OR_WITHOUT = [{"with", "without"}, {"mit", "ohne"}, {"avec", "sans"}, {"con", "sin"}]
IS = _words("is are was be became becomes ist sind war wird wurde est sont était es está era fue")
PREFER = _words("prefers prefer preferred bevorzugt préfère prefiere")
SAY = _words(
    "answer reply respond write call address talk explain antworte antworten schreibe schreiben nenne sprich",
    "réponds répondre écris écrire appelle responde responder escribe escribir llama contesta",
)
_OTHERS = _words(
    "moved moving relocated settled joined started switched changed quit stopped sold died gave left can will must",
    "should got became runs gives teaches leads studied finished",
)
VERBS = MANY | ONE | IS | PREFER | SAY | _OTHERS
DISLIKE = _words("hates hate dislikes dislike hasst déteste odia")
# Of whom, or of what, somebody has several.
RELATIVES = _words(
    "friend friends brother brothers sister sisters son sons daughter daughters child children kid cousin colleague",
    "colleagues aunt uncle neighbour neighbor pet pets dog dogs cat cats allergy hobby bruder schwester sohn",
    "tochter kind freund freundin kollege kollegin hund katze frère sœur fils fille enfant ami amie collègue chien",
    "chat hermano hermana hijo hija amigo amiga perro gato",
)
PREPOSITIONS = _words(
    "in at on with from to for by as of near under over about without bei mit von nach zu für als auf aus über ohne",
    "à au aux en chez avec pour par comme dans sur sans con para por como sin de desde",
)
# Subjects that say nothing about what a fact is about.
GENERAL = _words(
    "user preference preferences profile person general style info me nutzer vorliebe vorlieben utilisateur",
    "préférence préférences usuario preferencia preferencias",
)
# Subjects of which one fact holds at a time.
SINGLE = _words(
    "home city town residence address domicile location hometown phone telephone mobile email mail job employer",
    "company profession occupation position title marital relationship status diet age birthday birthdate name",
    "nickname surname editor ide browser shell terminal timezone zone theme colour color indentation indent salary",
    "rent deadline boss manager doctor dentist bank password username login version height weight seat airline tone",
    "units os language wohnort adresse stadt telefon telefonnummer handy beruf arbeitgeber firma stelle",
    "familienstand ernährung alter geburtstag spitzname gehalt miete frist chef chefin arzt ärztin größe gewicht",
    "sprache ville téléphone métier emploi travail employeur âge anniversaire nom salaire loyer patron langue",
    "domicilio ciudad dirección teléfono trabajo empleo empresa profesión edad cumpleaños nombre sueldo alquiler",
    "jefe dieta civil idioma",
)

ENDED = re.compile(
    r"\b(?:no longer|broke up|split up|any ?more|any longer|quit|stopped|gave up|given up|has left|sold|died"
    r"|passed away|got rid of|cancell?ed|ended|used to|dropped|abandoned|nicht mehr|keine?n?(?: \S+)? mehr|aufgehört"
    r"|aufgegeben|verkauft|gestorben|gekündigt|verlassen|beendet|abgeschafft|ne \S+ plus|n['’]\S{1,40} plus|arrêté"
    r"|vendu|morte?|décédée?|quitté|abandonné|ya no|dejó|dejado|vendió|vendido|murió|muerto|abandonó|terminó)\b"
)
FROM_NOW_ON = re.compile(
    r"\b(?:from now on|starting now|ab jetzt|von nun an|ab sofort|à partir de maintenant|de ahora en adelante)\b"
)
# Of things: a meeting, not a person.
MOVED = re.compile(
    r"\b(?:moved (?:to|from)|rescheduled|postponed|renamed|verschoben|verlegt|umbenannt|déplacée?|reportée?"
    r"|aplazad[oa])\b"
)
SWITCHED = re.compile(
    r"\b(?:switched|changed|migrated|converted|replaced|instead|rather than|umgestiegen|gewechselt|statt|anstatt"
    r"|stattdessen|passée? à|remplacé|au lieu|plutôt que|cambió|se pasó|reemplazó|en lugar|en vez)\b"
)
# Questions that have one answer, and how a fact answers them.
_PLACE = r"\s+(?:the\s+|der\s+|la\s+|el\s+)?(?=[^\W\d_a-zß-öø-ÿ])"
QUESTIONS = {
    "home": re.compile(
        rf"(?i:\b(?:(?:lives?|living|resides?|based|settled)(?: now)? (?:in|at|near)|(?:moved|moving"
        rf"|relocated)(?: back)?(?: from \S+)?"
        rf" to|(?:wohnt|lebt)(?: jetzt| nun)? in|(?:umgezogen|gezogen|zog|zieht|umzog|ist)(?: von \S+)? nach"
        rf"|(?:habite|réside|vit)"
        rf"(?: maintenant)? (?:à|en|au)|(?:déménagé|emménagé|installée?)(?: de \S+)? (?:à|en|au)|(?:vive"
        rf"|reside)(?: ahora)? en"
        rf"|(?:mudó|mudado|trasladó|trasladado)(?: de \S+)? a)){_PLACE}"
    ),
    "employer": re.compile(
        r"(?i:\b(?:works?|working|employed)(?: now)? (?:at|for|with|by)(?! (?:home|night|the (?:office|weekend)))"
        r"|\b(?:joined|hired by|new job (?:at|with)|started (?:at|working (?:at|for)))\b"
        r"|\barbeitet(?: jetzt| nun)? (?:bei|für)\b|\bangestellt bei\b|\btravaille(?: maintenant)? (?:chez|pour)\b"
        r"|\btrabaja(?: ahora)? (?:en|para)\b)"
    ),
    "role": re.compile(
        r"(?i:\b(?:works?|working|employed)(?: now)? as\b|\bbecame an?\b|\barbeitet(?: jetzt| nun)? als\b"
        r"|\btravaille(?: maintenant)? comme\b|\btrabaja(?: ahora)? (?:como|de)\b)"
    ),
}
# Values of which one holds at a time. Where a name ends with "*", what else the two facts say must be the same.
_VEGAN = r"vegan|veganer(?:in)?|végane?|vegan[oa]"
_VEGETARIAN = r"vegetarian|vegetarisch|vegetarier(?:in)?|végétarien(?:ne)?|vegetarian[oa]"
_EATS = r"(?:eats?|eating|isst|mange|come)(?: \S+){0,2}"
_GROUPS: dict[str, tuple[str, ...]] = {
    "marital": (
        r"(?:is|am|are|now|again|still|currently) single|unmarried|ledig|célibataire|solter[oa]",
        r"married|verheiratet|mariée?|casad[oa]",
        r"divorced|geschieden|divorcée?|divorciad[oa]",
        r"widowed|widower|verwitwet|veuve?|viud[oa]",
        r"engaged|fiancée?|verlobt|prometid[oa]",
        r"separated|getrennt|séparée?|separad[oa]",
    ),
    "meat": (
        f"{_VEGETARIAN}|{_VEGAN}|pescatarian|pescetarian",
        rf"omnivore|carnivore|eats? everything|{_EATS} (?:meat|beef|pork|chicken|steaks?|fleisch|viande|carne)",
    ),
    "fish": (f"{_VEGETARIAN}|{_VEGAN}", rf"pescatarian|pescetarian|{_EATS} (?:fish|fisch|poisson|pescado)"),
    "dairy": (_VEGAN, rf"{_VEGETARIAN}|{_EATS} (?:cheese|eggs|dairy|käse|eier|fromage|œufs|queso|huevos)"),
    "working": (
        r"unemployed|jobless|arbeitslos|au chômage|desemplead[oa]|en paro",
        r"retired|pensioner|rentner(?:in)?|pensioniert|retraitée?|jubilad[oa]",
        r"self-employed|freelance(?:r|s)?|selbst?ständig|indépendante?|autónom[oa]",
        r"works? (?:full-time )?(?:at|for)|arbeitet (?:bei|für)|travaille chez|trabaja en",
    ),
    "indentation": (r"tabs|tabulator(?:en)?|tabulations?|tabulador(?:es)?", r"spaces|leerzeichen|espaces|espacios"),
    "hand": (
        r"left-handed|linkshänder(?:in)?|gauch(?:er|ère)|zurd[oa]",
        r"right-handed|rechtshänder(?:in)?|diestr[oa]",
    ),
    "units": (r"metric|metrisch\w*|métriques?|métric[oa]s?|celsius", r"imperial|fahrenheit"),
    "clock": (r"12-hour|am/pm", r"24-hour|24-stunden\S*"),
    "smoker": (
        r"smoker|smokes|raucht|raucher(?:in)?|fume|fumeu(?:r|se)|fuma|fumador[a]?",
        r"non-?smoker|nichtraucher(?:in)?",
    ),
    "formality": (r"duzen|duze|tutoyer|tutear", r"siezen|sieze|vouvoyer"),
    "seat*": (r"window|fenster\S*|fenêtre|hublot|ventan\w+", r"aisle|gang\w*|couloir|pasillo"),
    "light*": (r"dark|dunkl?e?\w*|sombres?|oscur[oa]s?", r"light|bright|hell\w*|claire?s?|clar[oa]s?"),
    "length*": (
        r"short|brief|concise|terse|kurze?\w*|knapp\w*|court\w*|brèv\w+|brefs?|concis\w*|cort[oa]s?|breves?",
        (
            r"long|longer|detailed|verbose|thorough|lange?\w*|ausführlich\w*|detaillier\w+|longue?s?|détaillé\w*"
            r"|larg[oa]s?|detallad[oa]s?|extens[oa]s?"
        ),
    ),
    "tone*": (
        r"formal|förmlich\w*|formell\w*|formel\w*",
        r"informal|casual|locker\w*|informell\w*|informel\w*|familiar",
    ),
    "switch*": (
        r"enabled|active|aktiviert|aktiv|activée?|activad[oa]",
        r"disabled|inactive|deaktiviert|inaktiv|désactivée?|desactivad[oa]",
    ),
    "open*": (
        r"open|public|offen|öffentlich|ouverte?|publi(?:c|que)|abiert[oa]|públic[oa]",
        r"closed|private|geschlossen|privat|fermée?|privée?|cerrad[oa]|privad[oa]",
    ),
    "time*": (
        r"mornings?|early|morgens|früh|vormittags|matin|temprano|mañanas?",
        r"evenings?|nights?|late|abends|nachts|spät|soir|nuit|tarde|noches?",
    ),
}
# What to look for among the facts of other subjects, where a fact answers such a question or has such a value.
OTHER_WORDS = {
    "home": "lives moved based wohnt lebt gezogen habite vit déménagé vive mudó",
    "employer": "works working joined arbeitet travaille trabaja unemployed retired",
    "role": "works became arbeitet travaille trabaja",
    "marital": "single married divorced engaged widowed ledig verheiratet geschieden verlobt célibataire marié mariée "
    "divorcé divorcée soltero soltera casado casada",
    "meat": "vegetarian vegan pescatarian meat vegetarier vegetarierin vegetarisch fleisch végétarien viande carne",
    "working": "unemployed retired freelance works arbeitslos rentner chômage retraité desempleado jubilado",
    "indentation": "tabs spaces",
}
VALUES = [
    (group, at, re.compile(rf"(?<![\w-])(?:{pattern})(?![\w-])"))
    for group, patterns in _GROUPS.items()
    for at, pattern in enumerate(patterns)
]
NUMBER = re.compile(
    r".*\d.*|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|noon|midnight|eins|zwei|drei|vier|fünf"
    r"|sechs|sieben|acht|neun|zehn|deux|trois|quatre|cinq|sept|huit|neuf|dix|dos|tres|cuatro|cinco|seis|siete|ocho"
    r"|nueve|diez|january|february|march|april|june|july|august|september|october|november|december|januar|februar"
    r"|märz|juni|juli|oktober|dezember|janvier|février|mars|avril|juin|juillet|août|septembre|octobre|novembre"
    r"|décembre|enero|febrero|marzo|abril|mayo|junio|julio|agosto|septiembre|octubre|noviembre|diciembre"
)
WEEKDAY = re.compile(
    r"(?:mon|tues|wednes|thurs|fri|satur|sun)days?|(?:mon|diens|donners|frei|sams|sonn)tags?|mittwochs?|lundis?"
    r"|mardis?"
    r"|mercredis?|jeudis?|vendredis?|samedis?|dimanches?|lunes|martes|miércoles|jueves|viernes|sábados?|domingos?"
)
LANGUAGE = re.compile(
    r"english|german|french|spanish|italian|portuguese|dutch|polish|russian|turkish|chinese|japanese|korean|arabic"
    r"|swedish|danish|norwegian|finnish|czech|greek|englisch|deutsch|französisch|spanisch|italienisch|portugiesisch"
    r"|niederländisch|polnisch|russisch|türkisch|anglais|allemand|français|espagnol|italien|portugais|inglés|alemán"
    r"|francés|español|italiano|portugués"
)


_ALIKE = 0.6
_FEW_WORDS = 2


class Claim(Struct, frozen=True):
    """A fact as it is compared: its words, whom it is about, what it answers, and which values it has."""

    text: str
    words: tuple[str, ...]
    owner: frozenset[str]
    core: frozenset[str]
    is_negated: bool
    has_ended: bool
    is_more: bool
    has_switched: bool
    questions: frozenset[str]
    values: frozenset[tuple[str, int]]


@lru_cache(maxsize=1 << 12)
def claim(text: str, language: str) -> Claim:
    """Read a fact in a language."""
    low = text.casefold()
    words = tuple(tokens(FROM_NOW_ON.sub(" ", low)))
    verb = next((at for at, word in enumerate(words) if word in VERBS), 0)
    said = salient(text, language)
    has_ended = ENDED.search(low) is not None
    owner = frozenset(words[:verb]) - NOBODY - NOW - ALSO
    return Claim(
        text=low,
        words=tuple(word for word in words if word not in NOW and word not in ALSO),
        owner=owner,
        core=(said - stems_of(VERBS, language)) or said,
        is_negated=(is_negated(WITHOUT.sub(" ", text)) or has_ended) != (not DISLIKE.isdisjoint(words)),
        has_ended=has_ended,
        is_more=not ALSO.isdisjoint(words),
        has_switched=SWITCHED.search(low) is not None or (bool(owner) and MOVED.search(low) is not None),
        questions=frozenset(name for name, pattern in QUESTIONS.items() if pattern.search(text)),
        values=frozenset((group, at) for group, at, pattern in VALUES if pattern.search(low)),
    )


def other_words(text: str) -> str:
    """Words that facts have which answer the same as a text, or deny its values: what to look for besides its own."""
    read = claim(text, language_of(text))
    asked = read.questions | {group for group, _ in read.values}
    return " ".join(words for name, words in OTHER_WORDS.items() if name in asked)


def replaces(new: tuple[str, str], old: tuple[str, str]) -> bool:
    """Tell whether a new fact, as subject and text, takes the place of an old one."""
    subject = normal(new[0])
    is_one_subject = bool(subject) and subject == normal(old[0])
    language = language_of(f"{new[1]} {old[1]}")
    one, other = claim(new[1], language), claim(old[1], language)
    if one.words == other.words:
        return False
    # 1. It denies what the old one says, or says that this has ended.
    if one.is_negated != other.is_negated:
        common, shorter = one.core & other.core, min(len(one.core), len(other.core))
        if one.has_ended or other.has_ended:
            is_denied = 2 * len(common) >= shorter
        else:
            is_part = common in (one.core, other.core) and len(one.core ^ other.core) <= 1
            is_denied = is_part or len(common) >= _ALIKE * len(one.core | other.core)
        return is_one_subject and bool(common) and is_denied
    if one.is_more:
        return False
    if one.owner == other.owner and not one.is_negated:
        # 2. Both have values of which one can hold.
        if _exclude(one, other, is_one_subject=is_one_subject):
            return True
        # 3. Both answer a question that has one answer.
        if one.questions & other.questions and one.core != other.core:
            return True
    # 4. They say the same but for one value, of something that has one.
    return is_one_subject and _is_other_value(subject, one, other)


def _exclude(one: Claim, other: Claim, *, is_one_subject: bool) -> bool:
    """Tell whether two facts have different values of one group, and no value in common there."""
    for group in {name for name, _ in one.values} & {name for name, _ in other.values}:
        mine, theirs = ({at for name, at in read.values if name == group} for read in (one, other))
        if not mine.isdisjoint(theirs):
            continue
        if not group.endswith("*"):
            return True
        # Apart from their values of this group, the two must be about the same.
        rests = [one.text, other.text]
        for pattern in (pattern for name, _, pattern in VALUES if name == group):
            rests = [pattern.sub(" ", rest) for rest in rests]
        first, second = map(salient, rests)
        if is_one_subject and (first <= second or second <= first):
            return True
    return False


def _is_other_value(subject: str, one: Claim, other: Claim) -> bool:
    """Tell whether two facts differ in one place only, and there can be only one thing at that place."""
    first, second = one.words, other.words
    shorter = min(len(first), len(second))
    start = next((at for at in range(shorter) if first[at] != second[at]), shorter)
    end = next((at for at in range(shorter - start) if first[-1 - at] != second[-1 - at]), shorter - start)
    head, tail = frozenset(first[:start]), frozenset(first[len(first) - end :])
    mine, theirs = first[start : len(first) - end], second[start : len(second) - end]
    is_single = not SINGLE.isdisjoint(subject.split())
    if one.has_switched and (is_single or one.core & other.core):
        return True
    # "with milk" and "without milk", and all else is the same
    if {*mine, *theirs} in WITH_OR_WITHOUT:
        return True
    # Two values must be of one form: a name and a description hold at the same time.
    if not mine or not theirs or _form(mine) != _form(theirs):
        return False
    kind, owner, about = _kind(mine), one.owner & other.owner, head - NOBODY - IS
    is_many = bool(MANY & head)
    has_new_number = kind == "number" or (kind == "weekday" and not is_many)
    # Brothers and dogs have names at the same time.
    is_relative = bool(RELATIVES & head and (IS | NAMED) & head)
    # What is preferred are two of a kind: of one thing, or short and of a subject that says which.
    is_short = len(mine) == len(theirs) <= _FEW_WORDS
    is_one_preference = tail - NOBODY or (is_short and GENERAL.isdisjoint(subject.split()))
    reasons = (
        has_new_number and (about or tail) and _without_numbers(mine) == _without_numbers(theirs),
        kind == "language" and SAY & head,
        VERBS & head and not is_relative and is_single,
        ONE & head and not is_relative and not is_many,
        # "Use British spelling"
        USE & head and head <= USE | NOBODY and tail - NOBODY and len(mine) == len(theirs) == 1,
        PREFER & head and not is_many and is_one_preference,
        # "The rent is", but not "the user is".
        IS & head and not is_relative and not is_many and owner,
        # "is the user's manager"
        not head and IS & tail and SINGLE & tail and is_single,
    )
    return any(reasons)


def _form(value: tuple[str, ...]) -> tuple[str, bool, str, int]:
    prepositions = [word for word in value if word in PREPOSITIONS]
    first = value[0] if value[0] in PREPOSITIONS else ""
    return (_kind(value), value[0] in ARTICLES, first, len(prepositions))


def _without_numbers(value: tuple[str, ...]) -> list[str]:
    return [word for word in value if not NUMBER.fullmatch(word) and not WEEKDAY.fullmatch(word)]


def _kind(value: tuple[str, ...]) -> str:
    for name, pattern in (("number", NUMBER), ("weekday", WEEKDAY), ("language", LANGUAGE)):
        if any(pattern.fullmatch(word) for word in value):
            return name
    return ""
