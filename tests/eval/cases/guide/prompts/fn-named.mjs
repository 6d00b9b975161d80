export const named = ({ vars }) => [{ role: 'user', content: `named ${vars.question}` }]
