"""Pairs of facts that a model gave one subject: those that both hold, and those of which the second replaces the first.

Each is a subject, the first fact and the second.
"""

from __future__ import annotations

BOTH_HOLD = [
    ("pets", "The user has a dog named Rex.", "The user has a cat named Mia."),
    ("allergy", "The user is allergic to peanuts.", "The user is allergic to penicillin."),
    ("instructions", "Always answer in German.", "Always show prices with tax."),
    ("instructions", "Never use emojis.", "Never apologise."),
    ("languages", "The user speaks Portuguese.", "The user speaks Dutch."),
    ("hobbies", "The user likes climbing.", "The user likes chess."),
    ("sister", "The user's sister Ana runs a bakery.", "The user's sister Eva studies law."),
    ("user", "The user lives in Lisbon.", "The user works at a hospital."),
    ("job", "The user is a software engineer.", "The user works for Acme."),
    ("database", "The database is PostgreSQL 16.", "The database listens on port 5433."),
    ("tools", "The project uses pytest.", "The project uses ruff."),
    ("phone", "The user's work phone number is 555-0100.", "The user's private phone number is 555-0199."),
    ("birthday", "The user's birthday is on 3 May.", "Tom's birthday is on 9 June."),
    ("answers", "The user prefers short answers.", "The user prefers answers with sources."),
    ("music", "The user plays the violin.", "The user enjoys jazz."),
    ("medication", "The user takes metformin every morning.", "The user takes aspirin every evening."),
    ("Haustier", "Der Nutzer hat einen Hund.", "Der Nutzer hat auch eine Katze."),
    ("allergies", "L'utilisateur est allergique aux noix.", "L'utilisateur est allergique au gluten."),
    ("idiomas", "La usuaria habla francés.", "La usuaria habla catalán."),
    ("Anweisung", "Immer auf Deutsch antworten.", "Niemals Emojis verwenden."),
]

UPDATES = [
    ("diet", "The user is a vegetarian.", "The user eats meat."),
    ("marital status", "The user is single.", "The user is married."),
    ("home city", "The user lives in Paris.", "The user lives in Berlin."),
    ("city", "The user lives in Berlin.", "The user has moved to Hamburg."),
    ("employer", "The user works at Google.", "The user works at Mozilla."),
    ("job", "The user is a lawyer.", "The user is a baker now."),
    ("phone number", "The user's phone number is 555-0100.", "The user's phone number is 555-0142."),
    ("indentation", "The user prefers tabs.", "The user prefers spaces."),
    ("editor", "The user uses Emacs.", "The user uses Neovim."),
    ("answer language", "Always answer in German.", "Always answer in French."),
    ("emojis", "Never use emojis.", "Use emojis in answers."),
    ("answers", "The user prefers short answers.", "The user prefers detailed answers."),
    ("dog", "The user has a dog named Rex.", "The user's dog Rex has died."),
    ("meeting", "The weekly meeting is on Tuesday at 10.", "The weekly meeting is on Thursday at 10."),
    ("rent", "The rent is 900 euros.", "The rent is 950 euros."),
    ("alcohol", "The user drinks wine.", "The user does not drink wine anymore."),
    ("Wohnort", "Der Nutzer wohnt in München.", "Der Nutzer ist nach Wien gezogen."),
    ("Familienstand", "Die Nutzerin ist ledig.", "Die Nutzerin ist verheiratet."),
    ("domicile", "L'utilisateur habite à Lyon.", "L'utilisateur habite maintenant à Lille."),
    ("trabajo", "El usuario trabaja en Telefónica.", "El usuario trabaja en Iberia."),
]
