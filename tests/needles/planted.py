"""What is planted into long conversations: facts, instructions and identifiers, and what is asked about them later.

The questions were written before anything was tuned, and are not changed to suit the code.
"""

from __future__ import annotations

from typing import NamedTuple


class Needle(NamedTuple):
    """Words that someone said once, what is asked about them, and what an answer must have.

    `reworded` asks the same without a word of what was said, nor another form of one; small words aside.
    """

    said: str
    question: str
    answer: str
    reworded: str


FACTS = (
    Needle(
        "By the way, my sister Ilse moved to Porto last spring.",
        "Where does my sister Ilse live now?",
        "Porto",
        "What place did my sibling relocate into?",
    ),
    Needle(
        "Our cat is called Biscuit and she is fourteen.",
        "What is the name of our cat?",
        "Biscuit",
        "How did the family name its pet?",
    ),
    Needle(
        "I am allergic to walnuts, so no walnut cake for me.",
        "What am I allergic to?",
        "walnuts",
        "Which food gives me a bad immune reaction?",
    ),
    Needle(
        "The wedding is on the second Saturday of June.",
        "When is the wedding?",
        "second Saturday of June",
        "What date do they get married?",
    ),
    Needle(
        "My landlord, Mr Okonkwo, wants the rent by the third.",
        "What is the name of my landlord?",
        "Okonkwo",
        "Who owns the flat that I live in?",
    ),
    Needle(
        "We bought the blue house next to the mill.",
        "Which house did we buy?",
        "blue house",
        "What home did our family purchase?",
    ),
    Needle(
        "Grandfather worked as a clockmaker in Dresden.",
        "What did grandfather work as?",
        "clockmaker",
        "What was grandpa's profession?",
    ),
    Needle(
        "The spare key is under the third flowerpot.",
        "Where is the spare key?",
        "third flowerpot",
        "What can I unlock the door with when locked out?",
    ),
    Needle(
        "Theo plays the bassoon in the town orchestra.",
        "Which instrument does Theo play?",
        "bassoon",
        "What musical instrument is he performing on?",
    ),
    Needle(
        "The marathon in Ljubljana was my best race so far.",
        "In which city was my best race?",
        "Ljubljana",
        "Where did I run my fastest long distance competition?",
    ),
    Needle(
        "Our supplier for flour is the mill at Hartwell.",
        "Who is our supplier for flour?",
        "Hartwell",
        "Who delivers the baking ingredients?",
    ),
    Needle(
        "The doctor said to avoid grapefruit with the pills.",
        "What should I avoid with the pills?",
        "grapefruit",
        "Which food interferes with my medication?",
    ),
    Needle(
        "Maria decided that the launch moves to the autumn.",
        "When is the launch, as Maria decided?",
        "autumn",
        "What season will the product be released?",
    ),
    Needle(
        "The old printer jams whenever we use thick paper.",
        "When does the old printer jam?",
        "thick paper",
        "Why does the copying machine get stuck?",
    ),
)

INSTRUCTIONS = (
    Needle(
        "From now on always answer in British English.",
        "Which English should you answer in?",
        "British English",
        "What spelling variant do I want in replies?",
    ),
    Needle(
        "Never push to the main branch without asking me.",
        "What must you never do without asking?",
        "main branch",
        "Is it okay to upload commits directly to trunk?",
    ),
    Needle(
        "Please call me Captain in every reply.",
        "What should you call me?",
        "Captain",
        "How do I like to be addressed?",
    ),
    Needle(
        "Don't use semicolons in anything you write for me.",
        "Which punctuation must you not use?",
        "semicolons",
        "What punctuation mark is forbidden?",
    ),
    Needle(
        "Use tabs, not spaces, in all the Go files.",
        "Tabs or spaces in the Go files?",
        "tabs",
        "How is source code indented?",
    ),
    Needle(
        "Make sure every commit message starts with a verb.",
        "What must a commit message start with?",
        "with a verb",
        "How should the description of a change begin in git?",
    ),
    Needle(
        "I prefer short answers, three sentences at most.",
        "How long should answers be?",
        "three sentences",
        "How brief do I like responses?",
    ),
    Needle(
        "Remember to give all distances in kilometres.",
        "In which unit do I want distances?",
        "kilometres",
        "Should lengths be metric or miles?",
    ),
    Needle(
        "You must not read anything in the private folder.",
        "Which folder must you not read?",
        "private folder",
        "Which directory is off limits?",
    ),
    Needle(
        "When you are unsure, ask me instead of guessing.",
        "What should you do when unsure?",
        "instead of guessing",
        "How to behave in case of doubt?",
    ),
    Needle(
        "Only run the slow tests on Fridays.",
        "On which day should the slow tests run?",
        "Fridays",
        "What weekday is the lengthy suite executed?",
    ),
    Needle(
        "Write dates as day, month, year from here on.",
        "How should you write dates?",
        "day, month, year",
        "What calendar format do I like?",
    ),
)

IDENTIFIERS = (
    Needle(
        "The order number for the desk is ORD-58213.",
        "What is the order number of the desk?",
        "ORD-58213",
        "Which purchase reference does the furniture have?",
    ),
    Needle(
        "Our staging server listens on 10.44.7.19:8443.",
        "Where does the staging server listen?",
        "10.44.7.19:8443",
        "What is the IP and port of the preproduction host?",
    ),
    Needle(
        "The invoice goes to billing@hartwell.example.",
        "To which address goes the invoice?",
        "billing@hartwell",
        "Where do we mail requests for payment?",
    ),
    Needle(
        "The broken build was commit 9f3c2ab71d.",
        "Which commit was the broken build?",
        "9f3c2ab71d",
        "What revision hash made compilation fail?",
    ),
    Needle(
        "My passport number is X4471902K.",
        "What is my passport number?",
        "X4471902K",
        "What travel document ID do I have?",
    ),
    Needle(
        "The bug is tracked as LEDGER-1207.",
        "Under which id is the bug tracked?",
        "LEDGER-1207",
        "Which ticket describes the defect?",
    ),
    Needle(
        "The new parser lives in src/ledger/parse/tokens.rs.",
        "Where does the new parser live?",
        "parse/tokens.rs",
        "What source file holds the syntax analyser?",
    ),
    Needle(
        "Secrets are read from /etc/ledger/secrets.env at start.",
        "From which file are the secrets read?",
        "/etc/ledger/secrets.env",
        "Where do credentials get loaded on boot?",
    ),
    Needle(
        "The flag is called enable_shadow_writes.",
        "What is the flag called?",
        "enable_shadow_writes",
        "What is the name of the feature toggle?",
    ),
    Needle(
        "The flight to Lisbon is TP1357.",
        "What is the number of the flight to Lisbon?",
        "TP1357",
        "Which plane do I take into Portugal?",
    ),
    Needle(
        "The dashboard is at https://grafana.example/d/x81kq.",
        "Where is the dashboard?",
        "grafana.example/d/x81kq",
        "What link shows the monitoring charts?",
    ),
    Needle(
        "The door code of the studio is 7305#.",
        "What is the door code of the studio?",
        "7305#",
        "Which PIN opens the entrance of the atelier?",
    ),
    Needle(
        "The database is ledger_prod_eu and has two replicas.",
        "What is the production database called?",
        "ledger_prod_eu",
        "What name does our main SQL storage have?",
    ),
    Needle(
        "We pinned the image to version 4.18.2-rc3.",
        "To which version did we pin the image?",
        "4.18.2-rc3",
        "Which container release did we freeze?",
    ),
)

NEEDLES = FACTS + INSTRUCTIONS + IDENTIFIERS
